"""The table of classes: how often each was right, its size, its dimensions, what it is confused with. Worst first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._mistakes import Answers, answers
from ._read import Array, RunRecord

MOST_ROWS = 200
"""Of more classes, the page has this many rows: those that were least often right."""


class ClassRow(NamedTuple):
    """One class. What the run folder does not say is None."""

    number: int
    name: str
    right: int | None
    total: int | None
    train_size: int | None
    rank: float | None
    """effective rank: about how many dimensions its features fill"""
    other: str
    """the class that it is most often taken for; if there was no mistake, the class with the closest subspace"""
    why: str
    """in words: how often, or at which angle"""

    @property
    def recall(self) -> float | None:
        """The share of its samples that were right."""
        return self.right / self.total if self.right is not None and self.total else None


def class_rows(run: RunRecord, most: int = MOST_ROWS) -> list[ClassRow]:
    """The classes, worst recall first, at most so many. Classes without unseen samples come last."""
    found = answers(run)
    chosen = _worst_first(run, found)[:most]
    place = {j: at for at, j in enumerate(run.shown_classes)}
    sizes, ranks = run.tensors.get("train_sizes"), run.tensors.get("effective_ranks")
    taken, angles = _taken_for(found), run.tensors.get("smallest_angles")
    rows = []
    for j in chosen:
        at = place.get(j)
        other, why = _nearest(run, taken.get(j), at, angles)
        rows.append(
            ClassRow(
                number=j,
                name=run.name(j),
                right=int(found.right[j]) if found is not None else None,
                total=int(found.sizes[j]) if found is not None else None,
                train_size=int(sizes[at]) if sizes is not None and at is not None and at < len(sizes) else None,
                rank=float(ranks[j]) if ranks is not None and j < len(ranks) and ranks[j] > 0 else None,
                other=other,
                why=why,
            )
        )
    return rows


def recalls(found: Answers) -> tuple[Array, Array]:
    """The classes that have unseen samples, worst first, and the share of each that was right.

    Of equal shares, the class with more samples comes first: it says more.
    """
    present = np.flatnonzero(found.sizes > 0)
    share = found.right[present] / found.sizes[present]
    order = np.lexsort((present, -found.sizes[present], share))
    return present[order], share[order]


def _worst_first(run: RunRecord, found: Answers | None) -> list[int]:
    if found is None:
        return list(range(run.num_classes or 0))
    return [int(j) for j in (*recalls(found)[0], *np.flatnonzero(found.sizes == 0))]


def _taken_for(found: Answers | None) -> dict[int, tuple[int, int]]:
    """For every class with mistakes, the most frequent wrong answer and how often; of very many classes, for some."""
    if found is None:
        return {}
    if found.table is None:
        worst: dict[int, tuple[int, int]] = {}
        for true, answer, times in found.pairs.tolist():
            worst.setdefault(true, (answer, times))  # the most frequent one comes first
        return worst
    off = found.table.astype(np.int64)
    np.fill_diagonal(off, 0)
    answer = off.argmax(1)
    times = off.max(1)
    return {int(j): (int(answer[j]), int(times[j])) for j in np.flatnonzero(times)}


def _nearest(run: RunRecord, taken: tuple[int, int] | None, at: int | None, angles: Array | None) -> tuple[str, str]:
    if taken is not None:
        answer, times = taken
        return run.name(answer), f"taken for it {times:,} time{'s' if times > 1 else ''}"
    if angles is None or at is None or len(angles) < 2:
        return "", ""
    row = angles[at].astype(np.float64)
    row[at] = np.inf
    return run.name(run.shown_classes[int(row.argmin())]), f"no mistake; the closest, at {np.degrees(row.min()):.0f}°"
