"""What is kept of a study's runs: a line of JSON for each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vmcr2.sweep import Outcome

from ._trial import Trial
from .studies import decided, lines_of, settings_of

_KEPT = (
    *("test_", "holdout_", "train_", "head_", "readout", "seconds", "wall_", "device", "torch", "vmcr2", "git_"),
    *("expansion", "compression", "failed", "notes", "warning", "effective_rank", "subspace_overlap"),
)


def line_of(trial: Trial, outcome: Outcome) -> dict[str, Any]:
    """What is kept of a run."""
    figures = {name: value for name, value in outcome.figures.items() if name.startswith(_KEPT)}
    return {"name": trial.name, "settings": decided(trial.config), **figures}


def missing(trials: Sequence[Trial]) -> list[Trial]:
    """Those without a line of the same settings."""
    known = {study: [settings_of(line) for line in lines_of(study)] for study in {trial.study for trial in trials}}
    return [trial for trial in trials if decided(trial.config) not in known[trial.study]]


def keep_line(trial: Trial, outcome: Outcome, results: Path) -> str:
    """Add the run's line to its study, and say what came out."""
    if outcome.lost is not None:
        return f"lost: {trial.study} {trial.name}: {outcome.lost}\n{outcome.trace or ''}"
    line = line_of(trial, outcome)
    results.mkdir(parents=True, exist_ok=True)
    with (results / f"{trial.study}.jsonl").open("a") as lines:
        lines.write(json.dumps(line) + "\n")
    shown = {name: round(value, 4) for name, value in line.items() if isinstance(value, float)}
    return f"{trial.study} {trial.name}: {shown}"
