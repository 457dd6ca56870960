"""One point of a sweep from its configuration to its outcome, in the process that is asked to."""

from __future__ import annotations

import gc
import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..data import Source, open_data
from ..runs import Config, RunFolder, TrainingError, UserError, fit


@dataclass(frozen=True)
class Job:
    """A run to make, and where."""

    config: Config
    folder: Path
    for_report: bool = True
    """Whether what a report needs is kept; where it is not, it need not be made."""


@dataclass(frozen=True)
class Outcome:
    """What came of a job."""

    figures: dict[str, Any] = field(default_factory=dict)
    """Of a run that ended, for its line; ``failed`` in it where the training broke."""
    lost: str | None = None
    """Why there is no result, in one sentence; such a run can be tried again."""
    trace: str | None = None
    """The traceback of what nobody expected."""


class StoppedError(Exception):
    """The run was told to end early; it goes on from its checkpoint another time."""


class _Watch:
    """Ends a run where it is told to, and keeps what the run says."""

    def __init__(self, told_to_stop: Callable[[], bool] | None) -> None:
        self.told_to_stop = told_to_stop
        self.notes: list[str] = []

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        """Nothing."""

    def epoch(self, record: dict[str, Any]) -> None:
        """After an epoch that has a line of metrics, of which there are about a hundred, is the time to stop."""
        if self.told_to_stop is not None and self.told_to_stop():
            raise StoppedError

    def note(self, text: str) -> None:
        """For the line: that the step could not be captured, for instance, which its seconds should be read with."""
        self.notes.append(text)


def open_for_sweep(config: Config) -> Source:
    """The data of a configuration, without a way to the test images."""
    return open_data(config.data.name, config.data.path).training_only()


class Runner:
    """Makes runs one after another over data that are read once."""

    def __init__(self, open_source: Callable[[Config], Source] = open_for_sweep) -> None:
        self._open_source = open_source
        self._sources: dict[tuple[str, str | None], Source] = {}

    def __call__(self, job: Job, told_to_stop: Callable[[], bool] | None = None) -> Outcome:
        """Make the run, or go on with it, and say what came of it. Only a stop and Ctrl-C get through."""
        start = time.monotonic()
        watch = _Watch(told_to_stop)
        folder = RunFolder(job.folder)
        try:
            wall: float | None = None  # not known of a run whose line alone is missing
            if not folder.finished:
                _drop_if_begun_elsewhere(folder, job.config)
                fit(
                    job.config,
                    out=folder.path,
                    resume=True,
                    listener=watch,
                    source=self._source(job.config),
                    for_report=job.for_report,
                )
                wall = time.monotonic() - start
            notes = {"notes": watch.notes} if watch.notes else {}
            return Outcome(_figures(folder) | folder.read_summary() | notes | {"wall_seconds": wall})
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

    def _source(self, config: Config) -> Source:
        key = (config.data.name, config.data.path)
        if key not in self._sources:
            self._sources[key] = self._open_source(config)
        return self._sources[key]


def _give_memory_back() -> None:
    """After a run, before the next in the same process."""
    gc.collect()  # a captured graph and its memory go with the last run's cycles
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()


def prune(path: Path) -> None:
    """Keep what is small and says what was done: configuration, manifest, metrics, summary."""
    folder = RunFolder(path)
    for large in (folder.model, folder.objective, folder.subspaces, folder.evaluation):
        large.unlink(missing_ok=True)
    shutil.rmtree(folder.checkpoint.parent, ignore_errors=True)


def _drop_if_begun_elsewhere(folder: RunFolder, config: Config) -> None:
    """The same point started on another device or from another place: half of each would be neither."""
    try:
        same = not folder.config.exists() or folder.read_config().acting() == config.acting()
    except UserError:  # of another version
        same = False
    if not same:
        with folder.held():
            folder.clear()


def _figures(folder: RunFolder) -> dict[str, Any]:
    """What the line takes from the run's folder beside its summary."""
    manifest = folder.read_manifest()
    figures = {name: manifest[name] for name in ("device", "vmcr2", "torch", "git_commit")}
    metrics = folder.read_metrics()
    last = metrics[-1] if metrics else {}
    wanted = ("codes_trace", "variational_expansion", "variational_compression")
    return figures | {name: last[name] for name in wanted if name in last}
