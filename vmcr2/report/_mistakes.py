"""Which classes were taken for which: from the k×k table of few classes, or from the lists that a run of many has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._read import Array, RunRecord

_MOST = 10


class Mistake(NamedTuple):
    """Two classes, how often the first was taken for the second, and of how many."""

    true: str
    taken_for: str
    times: int
    total: int


class Answers(NamedTuple):
    """How the unseen samples were answered by the nearest subspace."""

    table: Array | None
    """(k, k), classes by answers; None if there are too many"""
    sizes: Array
    """(k,) samples"""
    right: Array
    """(k,) of them right"""
    pairs: Array
    """(n, 3): class, answer and times of the most frequent mistakes, falling"""


def answers(run: RunRecord) -> Answers | None:
    """From the run folder; None if it has none."""
    table = run.tensors.get("confusion")
    if table is not None and table.size:
        counts = table.astype(np.int64)
        off = counts - np.diag(np.diag(counts))
        order = np.argsort(-off, axis=None, kind="stable")[:_MOST]
        rows, columns = np.unravel_index(order, off.shape)
        pairs = np.stack([rows, columns, off[rows, columns]], axis=1)
        return Answers(table, counts.sum(1), np.diag(counts), pairs[pairs[:, 2] > 0])
    found = [run.tensors.get(name) for name in ("class_sizes", "class_right", "confused")]
    if any(one is None for one in found):
        return None
    sizes, right, pairs = (np.asarray(one).astype(np.int64) for one in found)
    return Answers(None, sizes, right, pairs)


def most_confused(run: RunRecord, found: Answers) -> list[Mistake]:
    """The most frequent mistakes, by number, ten at most."""
    return [
        Mistake(run.name(int(i)), run.name(int(j)), int(times), int(found.sizes[i]))
        for i, j, times in found.pairs[:_MOST]
    ]


def answers_sentence(run: RunRecord, found: Answers) -> str:
    """How many were right, and the class with the fewest."""
    total, right = int(found.sizes.sum()), int(found.right.sum())
    kind = run.unseen_words
    if not total:
        return "No sample was classified."
    recall = np.where(found.sizes > 0, found.right / np.maximum(found.sizes, 1), np.inf)
    worst = int(recall.argmin())
    return (
        f"{right:,} of {total:,} {kind} samples were put into their own class ({right / total:.4f}), by nearest "
        f"subspace. Least often right: «{run.name(worst)}», {int(found.right[worst])} of {int(found.sizes[worst])}."
    )
