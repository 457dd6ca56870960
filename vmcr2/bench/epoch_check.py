"""Have epochs become slower or larger? A few of a GPU's, against a committed record of `vmcr2 bench epoch`.

An objective can be as fast as before alone, and its epochs much slower: exact MCR² once was, by carried statistics.
Every epoch is divided by CIFAR-100's with cross-entropy. All configurations are ready at once, and their epochs run in
turn.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..data import Source
from ._epochs import CARRYING, CE, PLAIN, WITH_RATE, Contender, Epochs, configuration
from ._images import random_source
from ._measure import Say, silent
from ._verdicts import ALLOWED, RESULTS, Verdict, measured_again, record_at, without_record

ROUNDS = 5
COMMITTED = RESULTS / "epoch-h200.json"
_LIBRARIES_MIB = 64.0  # two workspaces of cuBLAS: a process allocates one for each stream that it happens to use
Figures = dict[str, Any]


class Row(NamedTuple):
    """A row of the record that is measured again; its network is not compiled."""

    data: str
    contender: Contender

    @property
    def name(self) -> str:
        """As the verdicts call it."""
        return f"{self.data}, {self.contender.title}"

    def find(self, rows: list[Figures]) -> Figures | None:
        """Its figures, if it was measured."""
        key = (self.data, self.contender.title, False)
        for row in rows:
            if (row["data"], row["contender"], row["compiled"]) == key and "failed" not in row:
                return row
        return None


BASE = Row("cifar100", CE)
ROWS = (
    BASE,  # first, as in its record: it makes cuDNN's search
    Row("cifar100", PLAIN),
    Row("cifar100", CARRYING),
    Row("cifar100", WITH_RATE),
    Row("mnist", CE),
    Row("cifar100-preact", CE),
)


class ShortSet:
    """The rows, ready to be timed."""

    def __init__(self, device: torch.device, *, images: int | None = None, say: Say = silent) -> None:
        self._ready: list[tuple[Row, Epochs]] = []
        sources: dict[str, Source] = {}
        for row in ROWS:
            say(f"epochs of {row.name}")
            config = configuration(row.data, row.contender, device)
            name = config.data.name
            sources[name] = sources.get(name) or random_source(name, images)
            self._ready.append((row, Epochs(config, sources[name], device)))

    def measure(self, rounds: int = ROUNDS) -> list[Figures]:
        """Rows as a record has them, of epochs that ran in turn, round after round."""
        for _, ready in self._ready:
            ready.seconds.clear()
        for _ in range(rounds):
            for _, ready in self._ready:
                ready.time_one()
        return [
            {"data": row.data, "contender": row.contender.title, "compiled": False} | ready.row()
            for row, ready in self._ready
        ]


def read_record(path: Path) -> dict[str, Any]:
    """A record of `vmcr2 bench epoch --json`."""
    return record_at(path, "epoch")


def run(
    device: torch.device, against: dict[str, Any], *, images: int | None = None, say: Say = silent
) -> tuple[list[Figures], list[Verdict]]:
    """What was measured, and the verdicts. Epochs of a row that was worse are timed again, up to three times."""
    ready = ShortSet(device, images=images, say=say)
    return measured_again(ready.measure, lambda results: compare(results, against["results"]), say)


def compare(now: list[Figures], before: list[Figures]) -> list[Verdict]:
    """Of each row the ratio to the base, the peak of memory, and whether steps are replayed."""
    base_now, base_before = BASE.find(now), BASE.find(before)
    verdicts: list[Verdict] = []
    for row in ROWS:
        new, old = row.find(now), row.find(before)
        if new is None or base_now is None:
            continue
        if row != BASE:
            ratio = _ratio(new, base_now)
            was = _ratio(old, base_before) if old and base_before else None
            verdicts.append(_verdict(f"epochs of {row.name} / {BASE.name}", ratio, was))
        if new["peak_mib"] is not None:
            peak = None if old is None else old["peak_mib"]
            verdicts.append(_verdict(f"epochs of {row.name}: peak MiB", new["peak_mib"], peak, _LIBRARIES_MIB))
        if old is not None:
            replayed, needed = float(new["captured"]), float(old["captured"])
            verdicts.append(Verdict(f"epochs of {row.name}: replayed (1) or not (0)", replayed, needed, needed, True))
    return verdicts


def _ratio(row: Figures, base: Figures) -> float:
    """Of two epochs."""
    return float(row["seconds_per_epoch"] / base["seconds_per_epoch"])


def _verdict(name: str, value: float, was: float | None, beyond: float = 0.0) -> Verdict:
    """More than 5 %, and ``beyond`` that, is worse."""
    return without_record(name, value) if was is None else Verdict(name, value, was * (1 + ALLOWED) + beyond, was)
