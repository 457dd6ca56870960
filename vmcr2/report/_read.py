"""Reads a run folder into plain records. A missing or damaged part is left out and named; it is never a crash."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data import DATASETS
from ..functional import maximal_rate_reduction
from ..objectives import OBJECTIVES
from ..runs import (
    FORMAT,
    DamagedError,
    RunFolder,
    UserError,
    deciding_settings,
    read_lines,
    read_record,
    read_tensors_with_metadata,
)
from ._checked import (
    checked_manifest,
    checked_metrics,
    checked_settings,
    checked_summary,
    checked_tensors,
)

Array = NDArray[Any]
_MOST_BYTES = 256 * 2**20


@dataclass(frozen=True)
class RunRecord:
    """One run as its folder describes it."""

    path: Path
    config: dict[str, Any]
    manifest: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] | None = None
    tensors: dict[str, Array] = field(default_factory=dict, repr=False)
    class_names: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def recipe(self) -> str:
        """The recipe's name; without one, and for a person's own data, the data and the objective."""
        if self.own_title or not self.config.get("recipe"):
            return f"{self.own_title or self.config.get('data', 'data')}-{self.objective}"
        return str(self.config["recipe"])

    @property
    def own_title(self) -> str:
        """What a person's own data are called: their folder or file. Empty for a known data set."""
        about = self.manifest.get("data")
        return str(about.get("title") or "") if isinstance(about, dict) else ""

    @functools.cached_property
    def deciding(self) -> dict[str, Any]:
        """The settings that decide what it learned, without the seed."""
        return deciding_settings(self.config)

    @property
    def objective(self) -> str:
        """By the name that a configuration gives it."""
        return str(self.config.get("objective", "vmcr2"))

    @property
    def objective_name(self) -> str:
        """The objective as a person writes it."""
        return OBJECTIVES[self.objective].title if self.objective in OBJECTIVES else self.objective

    @property
    def unseen(self) -> str:
        """Which samples the accuracy was measured on: ``test`` or ``holdout``. The two are never mixed."""
        return "holdout" if self.config.get("holdout") or self.config.get("validation") else "test"

    @property
    def unseen_words(self) -> str:
        """The same as a person writes it."""
        return "test" if self.unseen == "test" else "hold-out"

    @property
    def readout(self) -> str | None:
        """What the run predicts by, in words. None if its folder does not say: earlier versions had no choice."""
        words = {"head": "its head", "subspace": "nearest subspace"}
        return words.get(str(self.summary.get("readout"))) if self.summary else None

    @property
    def warning(self) -> str | None:
        """What is wrong with the features of a finished run, and what to do; None if nothing is."""
        found = self.summary.get("warning") if self.summary else None
        return str(found) if found else None

    @property
    def why_not_evaluated(self) -> str:
        """Why there are no features in the folder."""
        if self.summary is None:
            return "the run did not get as far as its evaluation"
        return "it was made without them: a sweep keeps them with --keep-weights"

    @property
    def num_classes(self) -> int | None:
        """k: from what was evaluated, or from the data set's name."""
        if "num_classes" in self.tensors:
            return int(self.tensors["num_classes"])
        for name in ("confusion", "spectra"):
            if name in self.tensors:
                return len(self.tensors[name])
        info = DATASETS.get(str(self.config.get("data")))
        return info.classes if info else None

    @property
    def most_delta(self) -> float | None:
        """The largest ΔR of balanced classes."""
        k, d, eps_sq = self.num_classes, self.config.get("dim"), self.config.get("eps_sq")
        return maximal_rate_reduction(d, k, eps_sq=eps_sq) if k and d and eps_sq else None

    @property
    def most_expansion(self) -> float | None:
        """The largest R: d/2 · log(1 + 1/ε²)."""
        d, eps_sq = self.config.get("dim"), self.config.get("eps_sq")
        return d / 2 * math.log1p(1 / eps_sq) if d and eps_sq else None

    @property
    def epochs_done(self) -> int:
        """The last epoch that has a line of metrics."""
        return int(self.metrics[-1]["epoch"]) if self.metrics else 0

    @property
    def seconds(self) -> float | None:
        """Seconds of training so far."""
        if self.summary is not None and "seconds" in self.summary:
            return float(self.summary["seconds"])
        return float(self.metrics[-1]["seconds"]) if self.metrics and "seconds" in self.metrics[-1] else None

    @property
    def seconds_per_epoch(self) -> float | None:
        """Only training, without measuring."""
        epochs = self.summary.get("epochs", self.epochs_done) if self.summary else self.epochs_done
        return self.seconds / epochs if self.seconds is not None and epochs else None

    def figure(self, name: str) -> float | None:
        """A finite figure of the summary."""
        value = self.summary.get(name) if self.summary else None
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    def names(self) -> list[str]:
        """A name for every class: «class 17» if the run has none."""
        k = self.num_classes or 0
        return [self.name(j) for j in range(k)]

    def name(self, label: int) -> str:
        """Of one class."""
        return self.class_names[label] if label < len(self.class_names) else f"class {label}"

    @property
    def shown_classes(self) -> list[int]:
        """The classes that spectra, angles and pictures are of: all, or some of many."""
        found = self.tensors.get("shown_classes")
        return list(range(self.num_classes or 0)) if found is None else [int(j) for j in found]

    def shown_names(self) -> list[str]:
        """Their names."""
        return [self.name(j) for j in self.shown_classes]


def read_run(path: Path | str) -> RunRecord:
    """The run in a folder, finished or not. A folder that is no run, or of another format, is a :class:`UserError`."""
    folder = RunFolder(Path(path))
    if not folder.config.is_file() or folder.is_pretrained:
        raise folder.no_run()
    folder.check_files()
    problems: list[str] = []
    try:
        config = checked_settings(read_record(folder.config), "config.json", problems)
    except DamagedError as error:
        raise UserError(f"{error}: {folder.path} cannot be shown in a report") from error
    manifest = _read(folder.manifest)
    if manifest is None:
        problems.append("manifest.json is missing or damaged: versions, hardware and the command are not known.")
    elif (version := manifest.get("format")) != FORMAT:
        raise UserError(
            f"{folder.path} has run-folder format {version if isinstance(version, int) else '?'}, this report reads "
            f"format {FORMAT}: use the version named in its manifest.json"
        )
    summary = _read(folder.summary)
    if summary is None and folder.summary.exists():
        problems.append("summary.json is damaged: its figures are left out.")
    tensors, names = _evaluation(folder.evaluation, problems)
    return RunRecord(
        path=folder.path,
        config=config,
        manifest=checked_manifest(manifest or {}, problems),
        metrics=_metrics(folder, problems),
        summary=None if summary is None else checked_summary(summary, problems),
        tensors=tensors,
        class_names=names,
        problems=tuple(problems),
    )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return read_record(path)
    except DamagedError:
        return None


def _metrics(folder: RunFolder, problems: list[str]) -> list[dict[str, Any]]:
    try:
        lines, damaged = read_lines(folder.metrics)
    except DamagedError as error:
        problems.append(f"{error}.")
        return []
    if damaged:
        problems.append(f"metrics.jsonl: {damaged} damaged lines are left out.")
    return checked_metrics(lines)


def _evaluation(path: Path, problems: list[str]) -> tuple[dict[str, Array], tuple[str, ...]]:
    if not path.exists():
        return {}, ()
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DamagedError(f"{path} has more than {_MOST_BYTES:,} bytes")
        found, metadata = read_tensors_with_metadata(path)
        tensors = {name: np.asarray(value.numpy()) for name, value in found.items()}
    except (DamagedError, TypeError) as error:  # TypeError: numbers that numpy does not have
        problems.append(f"evaluation.safetensors is damaged ({error}): pictures of the classes are left out.")
        return {}, ()
    try:
        names = json.loads(metadata.get("class_names", "[]"))
    except (ValueError, RecursionError):
        names = []
    return checked_tensors(tensors, problems), tuple(map(str, names)) if isinstance(names, list) else ()
