"""What is left to run, in order, and what each run takes."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from vmcr2.runs import Config

from ..defaults._lines import missing
from ..defaults._trial import Trial
from ..defaults.studies import studies
from ..ledger.finals import Task, task_of
from ..ledger.rows import RESULTS, result_of, rows
from ..speed import record_of

STUDIES = (
    *("row-cifar10-next", "row-cifar10-mixed", "row-cifar100-preact", "levers-cifar100-narrow"),
    *("row-tiny-imagenet-preact", "row-tiny-imagenet-next", "row-tiny-imagenet-d200", "rule-focus"),
)
"""Those that choose recipes and wait for a GPU; the ledger's rows come after them."""
AROUND = 15.0
"""Seconds of a run before its first step and after its last one: data, set-up, evaluation."""
GAIN = 1.4
"""Runs beside each other under MPS do at least so many times the work of one after another (experiments/README.md)."""


class Piece(NamedTuple):
    """One run, of a study or of the ledger."""

    name: str
    source: Trial | Task

    @property
    def config(self) -> Config:
        """Its settings."""
        return self.source.config if isinstance(self.source, Trial) else self.source.row.of(self.source.seed)


def pieces(runs: Path, only: Sequence[str] = ("*",), but: Sequence[str] = ()) -> list[Piece]:
    """Those without a result whose names match ``only`` and not ``but``.

    They come in the order of ``only``'s patterns; of one pattern what chooses recipes comes first.
    """
    found = [Piece(f"{name}: {trial.name}", trial) for name in STUDIES for trial in missing(studies()[name])]
    for row in rows().values():
        found += [
            Piece(row.named(seed), task_of(row, seed, runs))
            for seed in row.seeds
            if result_of(RESULTS, row, seed) is None
        ]
    left = [piece for piece in found if not any(fnmatch(piece.name, pattern) for pattern in but)]
    # a name that another pattern has matched before keeps its place
    return list({piece.name: piece for pattern in only for piece in left if fnmatch(piece.name, pattern)}.values())


def alone(config: Config) -> float:
    """Seconds of a run that has one H200 for itself, by the committed `vmcr2 bench epoch`."""
    preact = config.model.name == "preact18"
    place = "cifar100-preact" if preact else config.data.name
    known: dict[str, float] = {
        row["contender"]: row["seconds_per_epoch"] / row["images"]
        for row in record_of("epoch-h200")["results"]
        if row["data"] == place and not row["compiled"] and "failed" not in row
    }
    # a contender that was not measured takes about as long as the slowest one that was
    each = known.get(_contender(config), max(known.values(), default=0.0))
    images = 100_000 if config.data.name == "tiny-imagenet" else 60_000 if config.data.name == "mnist" else 50_000
    return AROUND + config.optim.epochs * images * each


def _contender(config: Config) -> str:
    """The record's name of an objective."""
    flat = config.flat()
    if config.objective.name == "mcr2":
        return "MCR², exact, 40,000 rows carried" if flat["memory"] else "MCR², exact, plain"
    if config.objective.name == "vmcr2":
        return "V-MCR² with R(z)" if flat["batch_expansion"] else "V-MCR², Eq. 7"
    return {"ce": "CE", "ce+mcr2": "CE + MCR², exact, plain", "ce+vmcr2": "CE + V-MCR² with R(z)"}[
        config.objective.name
    ]


class Clock:
    """What a run will take beside others: by the record, and then by the runs that have ended."""

    def __init__(self, parallel: int) -> None:
        self._slower = max(1.0, parallel / GAIN)
        self._alone = self._beside = 0.0

    def ended(self, piece: Piece, seconds: float) -> None:
        """Learn from a run."""
        self._alone += alone(piece.config)
        self._beside += seconds
        self._slower = self._beside / self._alone

    def takes(self, piece: Piece) -> float:
        """Seconds from its start to its result."""
        return alone(piece.config) * self._slower
