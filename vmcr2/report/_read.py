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
from safetensors import SafetensorError, safe_open

from ..data import DATASETS
from ..functional import maximal_rate_reduction
from ..objectives import OBJECTIVES
from ..runs import FORMAT, RunFolder, UserError, deciding_settings

Array = NDArray[Any]


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
    def num_classes(self) -> int | None:
        """k: from what was evaluated, or from the data set's name."""
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
        return [self.class_names[j] if j < len(self.class_names) else f"class {j}" for j in range(k)]


def read_run(path: Path | str) -> RunRecord:
    """The run in a folder, finished or not. A folder that is no run, or of another format, is a :class:`UserError`."""
    folder = RunFolder(Path(path))
    if not folder.config.is_file() or folder.is_pretrained:
        raise folder.no_run()
    config = _json(folder.config)
    if config is None:
        raise UserError(f"{folder.config} is damaged: {folder.path} cannot be shown in a report")
    problems: list[str] = []
    manifest = _json(folder.manifest)
    if manifest is None:
        problems.append("manifest.json is missing or damaged: versions, hardware and the command are not known.")
    elif manifest.get("format") != FORMAT:
        raise UserError(
            f"{folder.path} has run-folder format {manifest.get('format')}, this report reads format {FORMAT}: "
            "use the version named in its manifest.json"
        )
    summary = _json(folder.summary)
    if summary is None and folder.summary.exists():
        problems.append("summary.json is damaged: its figures are left out.")
    tensors, names = _evaluation(folder.evaluation, problems)
    return RunRecord(
        path=folder.path,
        config=config,
        manifest=manifest or {},
        metrics=_metrics(folder),
        summary=summary,
        tensors=tensors,
        class_names=names,
        problems=tuple(problems),
    )


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _metrics(folder: RunFolder) -> list[dict[str, Any]]:
    try:
        lines = folder.read_metrics()
    except (OSError, ValueError):
        return []
    return [line for line in lines if isinstance(line, dict) and isinstance(line.get("epoch"), int)]


def _evaluation(path: Path, problems: list[str]) -> tuple[dict[str, Array], tuple[str, ...]]:
    if not path.exists():
        return {}, ()
    try:
        with safe_open(path, framework="numpy") as handle:
            metadata = handle.metadata() or {}
            tensors = {name: np.asarray(handle.get_tensor(name)) for name in handle.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        problems.append(f"evaluation.safetensors is damaged ({error}): pictures of the classes are left out.")
        return {}, ()
    try:
        names = json.loads(metadata.get("class_names", "[]"))
    except ValueError:
        names = []
    return tensors, tuple(map(str, names)) if isinstance(names, list) else ()
