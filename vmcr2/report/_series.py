"""Metrics as series over epochs and seconds. Long ones are thinned, and keep their extremes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ._read import Array, RunRecord


class Series(NamedTuple):
    """A quantity over the epochs in which it was measured."""

    epochs: list[int]
    seconds: list[float]
    values: list[float]

    @property
    def last(self) -> float:
        """The latest value."""
        return self.values[-1]


def read_series(run: RunRecord, name: str, limit: int, final: float | None = None) -> Series | None:
    """The finite values of a metric, at most ``limit`` of them; ``final`` is one more, measured after the last epoch.

    None if there is nothing: the objective does not have it, or it was never measured.
    """
    points = [
        (line["epoch"], float(line.get("seconds") or 0.0), float(line[name]))
        for line in run.metrics
        if isinstance(line.get(name), int | float) and math.isfinite(line[name])
    ]
    if final is not None:
        end = run.epochs_done or int(run.config.get("epochs", 1))
        points = [point for point in points if point[0] < end] + [(end, run.seconds or 0.0, final)]
    if not points:
        return None
    kept = thin(np.array([point[2] for point in points]), limit)
    return Series(*(list(column) for column in zip(*(points[i] for i in kept), strict=True)))


def thin(values: Array, limit: int) -> list[int]:
    """Indices of at most ``limit`` points: the first, the last, and of every stretch the lowest and the highest.

    >>> thin(np.array([0, 0, 9, 0, 0, 0, -9, 0]), 6)
    [0, 2, 4, 6, 7]
    """
    count = len(values)
    if count <= limit:
        return list(range(count))
    stretches = np.array_split(np.arange(count), max(1, (limit - 2) // 2))
    kept = {0, count - 1}
    for stretch in stretches:
        part = values[stretch]
        kept |= {int(stretch[part.argmin()]), int(stretch[part.argmax()])}
    return sorted(kept)


def short(value: float, digits: int = 5) -> float:
    """Fewer digits, for a small page."""
    return float(f"{value:.{digits}g}")


def as_payload(series: Series) -> dict[str, Any]:
    """For the page's script: e, s and y."""
    return {
        "e": series.epochs,
        "s": [short(second) for second in series.seconds],
        "y": [short(value) for value in series.values],
    }
