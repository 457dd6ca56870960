"""The ledger's rows: the paper's tables for MNIST and CIFAR-100, by the paper's settings and tuned, and their results.

A run trains on all training images and reads the test images once, at its end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmcr2.runs import Config, UserError, recipe

RESULTS = Path(__file__).parents[1] / "results" / "ledger"
TUNED_SEEDS = (0, 1, 2)
OBJECTIVES = {"vmcr2": "V-MCR²", "mcr2": "MCR²", "ce": "cross-entropy"}
"""As the paper calls them."""
Result = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A claim: a configuration and its seeds."""

    name: str
    config: Config
    seeds: tuple[int, ...] = (0,)

    def of(self, seed: int) -> Config:
        """The configuration of one run."""
        return self.config.replace(seed=seed)

    def named(self, seed: int) -> str:
        """One run: the name of its result's file, without the ending."""
        return f"{self.name}-seed{seed}"


def _row(family: str, name: str, seeds: tuple[int, ...]) -> Row:
    return Row(f"{family}-{name}", recipe(f"{name}-paper" if family == "paper" else name, calibration_share=0.0), seeds)


def rows() -> dict[str, Row]:
    """All by name, in the order in which GPU time is spent."""
    cifar = [_row("tuned", f"cifar100-{objective}", TUNED_SEEDS) for objective in ("vmcr2", "ce")]
    mnist = [_row("tuned", f"mnist-{objective}", TUNED_SEEDS) for objective in OBJECTIVES]
    carried = [_row("tuned", "cifar100-mcr2", TUNED_SEEDS)]
    paper = [_row("paper", f"{data}-{objective}", (0,)) for data in ("cifar100", "mnist") for objective in OBJECTIVES]
    narrow = [
        _row(family, f"cifar100-d100-{objective}", (0,))
        for family in ("tuned", "paper")
        for objective in ("vmcr2", "mcr2")
    ]
    preact = [_row("tuned", f"cifar100-preact-{objective}", (0,)) for objective in ("vmcr2", "ce")]  # 300 epochs
    return {row.name: row for row in [*cifar, *mnist, *carried, *paper, *narrow, *preact]}


def result_of(results: Path, row: Row, seed: int) -> Result | None:
    """The result of a run, if it was made by the row's settings of today."""
    path = results / f"{row.named(seed)}.json"
    if not path.exists():
        return None
    result: Result = json.loads(path.read_text())
    try:
        same = Config.from_flat(result["settings"]).deciding() == row.of(seed).deciding()
    except UserError:  # it used a setting that is gone
        same = False
    return result if same else None
