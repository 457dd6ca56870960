"""The ledger's rows: the paper's tables, by the paper's settings and tuned, one pair beyond them, and their results.

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
DATA = ("mnist", "cifar10", "cifar100", "tiny-imagenet")
LARGE = ("cifar100", "tiny-imagenet")
"""Those of Table 3."""
NARROW = ("cifar100-d100", "tiny-imagenet-d200")
"""Those of Figure 1 with one dimension for each class."""
COMPOSED_AND_ALONE = ("cifar100-ce+mcr2", "cifar100-ce")
"""Is a composed objective more accurate than cross-entropy? Not in the paper (docs/tuning.md)."""
SAME_FOR_BOTH: dict[str, Any] = {
    **{"epochs": 400, "crop_padding": 8, "flip": True, "decay_all": True},
    **{"average_flips": True, "average_shifts": 2},
}
"""Their settings of length, pictures and views."""
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


def _row(family: str, name: str, seeds: tuple[int, ...], **changes: Any) -> Row:
    config = recipe(f"{name}-paper" if family == "paper" else name, calibration_share=0.0, **changes)
    return Row(f"{family}-{name}", config, seeds)


def rows() -> dict[str, Row]:
    """All by name, in the order in which GPU time is spent."""
    tuned = [_row("tuned", f"{data}-{objective}", TUNED_SEEDS) for data in DATA for objective in OBJECTIVES]
    preact = [
        _row("tuned", f"{data}-preact-{objective}", TUNED_SEEDS) for data in LARGE for objective in ("vmcr2", "ce")
    ]
    ahead = [_row("ahead", name, TUNED_SEEDS, **SAME_FOR_BOTH) for name in COMPOSED_AND_ALONE]
    narrow = [
        _row(family, f"{data}-{objective}", (0,))
        for family in ("tuned", "paper")
        for data in NARROW
        for objective in ("vmcr2", "mcr2")
    ]
    paper = [_row("paper", f"{data}-{objective}", (0,)) for data in DATA for objective in OBJECTIVES]
    # 2000 epochs of this network are long
    paper += [
        _row("paper", f"{data}-preact-{objective}", (0,), epochs=300) for data in LARGE for objective in ("vmcr2", "ce")
    ]
    return {row.name: row for row in [*tuned, *ahead, *preact, *paper, *narrow]}


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
