"""Makes the run of one point in the present process: from its configuration to its outcome."""

from __future__ import annotations

import gc
import shutil
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .._shared import lock
from ..data import Source, open_settings
from ..runs import Callback, Config, RunFolder, TrainingError, UserError, fit


@dataclass(frozen=True)
class Job:
    """A run to make, and where."""

    config: Config
    folder: Path
    for_report: bool = True
    """Whether to write what only a report needs; without --keep-weights it is not kept."""


@dataclass(frozen=True)
class Outcome:
    """The result of a job."""

    figures: dict[str, Any] = field(default_factory=dict)
    """Figures of a run that ended, for its line; with ``failed`` if the training broke."""
    lost: str | None = None
    """Why there is no result, in one sentence; such a run can be tried again."""
    trace: str | None = None
    """The traceback of an unexpected error."""
    died: bool = False
    """Whether its process ended in the middle."""


class StoppedError(Exception):
    """The run was told to end early. It continues from its checkpoint next time."""


class _Watch:
    """Ends a run when it is told to, after a checkpoint, and keeps the run's messages."""

    def __init__(self, told_to_stop: Callable[[], bool] | None) -> None:
        self.told_to_stop = told_to_stop
        self.notes: list[str] = []

    def epoch(self, record: dict[str, Any]) -> None:
        """Stop if told to. This is called for each line of metrics, about a hundred times per run."""
        if self.told_to_stop is not None and self.told_to_stop():
            raise StoppedError

    def note(self, text: str) -> None:
        """Keep it for the run's line. That the step could not be captured, for example, explains its seconds."""
        self.notes.append(text)


def open_for_sweep(config: Config) -> Source:
    """The data of a configuration, without a way to the test images."""
    return open_settings(config.data).training_only()


class Runner:
    """Makes runs one after another, and reads the data once."""

    def __init__(self, open_source: Callable[[Config], Source] = open_for_sweep) -> None:
        self._open_source = open_source
        self._sources: dict[tuple[Any, ...], Source] = {}

    def __call__(self, job: Job, told_to_stop: Callable[[], bool] | None = None) -> Outcome:
        """Make the run, or continue it, and return its outcome. Only a stop and Ctrl-C raise."""
        start = time.monotonic()
        watch = _Watch(told_to_stop)
        folder = RunFolder(job.folder)
        try:
            wall: float | None = None  # not known if the run was finished and only its line is missing
            if not folder.finished or _stopped_early(folder):
                _drop_if_begun_elsewhere(folder, job.config)
                fit(
                    job.config,
                    out=folder.path,
                    resume=True,
                    callbacks=[watch, *self.callbacks(job)],
                    source=self.source(job.config),
                    for_report=job.for_report,
                )
                wall = time.monotonic() - start
            notes = {"notes": watch.notes} if watch.notes else {}
            found = _figures(folder) | folder.read_summary() | self.more_figures(job)
            return Outcome(found | notes | {"wall_seconds": wall})
        except TrainingError as error:
            return Outcome(_figures(folder) | {"failed": str(error), "wall_seconds": time.monotonic() - start})
        except UserError as error:
            return Outcome(lost=str(error))
        except StoppedError:
            raise
        except Exception as error:
            return Outcome(lost=f"{type(error).__name__}: {error}".splitlines()[0], trace=traceback.format_exc())
        finally:
            _give_memory_back()

    def callbacks(self, job: Job) -> list[Callback]:
        """More that follow the run."""
        return []

    def more_figures(self, job: Job) -> dict[str, Any]:
        """More that the line of a finished run says."""
        return {}

    def source(self, config: Config) -> Source:
        """The data of a configuration: opened once, for all runs on them."""
        key = tuple(config.data.reading().values())
        if key not in self._sources:
            self._sources[key] = self._open_source(config)
        return self._sources[key]


def _give_memory_back() -> None:
    """Free the memory of a run before the next run in the same process."""
    gc.collect()  # reference cycles keep a captured graph and its memory alive
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def prune(path: Path) -> None:
    """Keep only the small files that describe the run: configuration, manifest, metrics, summary."""
    folder = RunFolder(path)
    for large in (
        *(folder.model, folder.objective, folder.subspaces, folder.evaluation),
        *(folder.confidence, folder.kept_samples),
    ):
        large.unlink(missing_ok=True)
    shutil.rmtree(folder.checkpoint.parent, ignore_errors=True)


def prune_leftovers(out: Path) -> None:
    """Prune the runs of a sweep's folder that a kill left unpruned.

    They are finished and have weights, but no evaluation: only a run whose weights are kept has one.
    """
    for path in (out / "runs").glob("*"):
        folder = RunFolder(path)
        if folder.finished and folder.model.exists() and not folder.evaluation.exists():
            with suppress(UserError), lock(path):  # another worker may be at it
                prune(path)


def _drop_if_begun_elsewhere(folder: RunFolder, config: Config) -> None:
    """Clear a run that was started on another device or from another place: half of each would be neither.

    Also one that a search has stopped early: it would count as finished.
    """
    try:
        same = not folder.config.exists() or folder.read_config().acting() == config.acting()
        same = same and not _stopped_early(folder)
    except UserError:  # from another version
        same = False
    if not same:
        with folder.held():
            folder.clear()


def _stopped_early(folder: RunFolder) -> bool:
    """Whether a search has stopped the run, which is finished, before its last epoch."""
    return folder.finished and bool(folder.read_summary().get("stopped_by") == "callback")


def _figures(folder: RunFolder) -> dict[str, Any]:
    """What the line takes from the run's folder besides its summary."""
    manifest = folder.read_manifest()
    figures = {name: manifest[name] for name in ("device", "vmcr2", "torch", "git_commit")}
    metrics = folder.read_metrics()
    last = metrics[-1] if metrics else {}
    wanted = ("codes_trace", "variational_expansion", "variational_compression")
    return figures | {name: last[name] for name in wanted if name in last}
