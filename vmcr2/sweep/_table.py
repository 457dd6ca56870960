"""The table at the end: settings in the order of their hold-out accuracy, averaged over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._shared import shown
from ._points import Point
from ._results import Record

_FIGURES = {
    "readout_accuracy": ("read-out", ".4f"),
    "holdout_accuracy": ("hold-out", ".4f"),
    "holdout_class_mean_accuracy": ("class mean", ".4f"),
    "head_accuracy": ("head", ".4f"),
    "train_delta_r": ("ΔR (train)", ".1f"),
    "batch_delta_r": ("ΔR (batch)", ".1f"),
    "train_accuracy": ("train", ".4f"),
    "seconds": ("seconds", ".1f"),
}


class Row(NamedTuple):
    """Points that differ only in their seed."""

    settings: dict[str, Any]
    seeds: list[int]
    means: dict[str, float]
    """Over the seeds that did not fail; empty if all did."""
    deviations: dict[str, float]
    """Sample standard deviations; empty for one seed."""
    failed: list[str]
    pruned: list[int] = []  # noqa: RUF012 (a NamedTuple's default; nobody changes it)
    """Epochs after which a search stopped the runs early; empty if it did not."""

    @property
    def order(self) -> tuple[bool, bool, float]:
        """Best first; what was stopped early, and then what failed with every seed, last."""
        return not self.means, bool(self.pruned), -score(self.means) if self.means else 0.0


def rank(points: Sequence[Point], records: dict[str, Record]) -> list[Row]:
    """Best mean hold-out accuracy first, of what the runs predict by; rows that failed with every seed last.

    Runs that a search stopped early come before these. Points without a line are left out.
    """
    return [row for row, _ in _ranked(points, records)]


def winner(points: Sequence[Point], records: dict[str, Record]) -> Point | None:
    """The best point, with its first seed; None if no run came to its end."""
    for row, members in _ranked(points, records):
        if row.means and not row.pruned:
            return next(point for point in members if "failed" not in records[point.id])
    return None


def _ranked(points: Sequence[Point], records: dict[str, Record]) -> list[tuple[Row, list[Point]]]:
    groups: dict[str, list[Point]] = {}
    for point in points:
        if point.id in records:
            groups.setdefault(point.group, []).append(point)
    rows = [(_row(members, [records[point.id] for point in members]), members) for members in groups.values()]
    return sorted(rows, key=lambda pair: pair[0].order)


def score(figures: Mapping[str, Any]) -> float:
    """What points are compared by: the hold-out accuracy of what a run predicts by. Older lines have the subspace's."""
    accuracy: float = figures["readout_accuracy" if "readout_accuracy" in figures else "holdout_accuracy"]
    return accuracy


def _row(points: list[Point], records: list[Record]) -> Row:
    good = [record for record in records if "failed" not in record]
    columns = {name: [record[name] for record in good if name in record] for name in _FIGURES}
    return Row(
        dict(points[0].settings),
        [record["seed"] for record in records],
        {name: statistics.fmean(values) for name, values in columns.items() if values},
        {name: statistics.stdev(values) for name, values in columns.items() if len(values) > 1},
        [record["failed"] for record in records if "failed" in record],
        [record["epochs"] for record in records if record.get("pruned")],
    )


def table(rows: Sequence[Row]) -> str:
    """As Markdown."""
    axes = list(dict.fromkeys(name for row in rows for name in row.settings))
    figures = {name: how for name, how in _FIGURES.items() if any(name in row.means for row in rows)}
    headings = [*axes, "seeds", *(heading for heading, _ in figures.values()), "remark"]
    if not any(row.failed or row.pruned for row in rows):
        headings.pop()
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    for row in rows:
        cells = [shown(row.settings[name]) if name in row.settings else "" for name in axes]
        cells.append(",".join(map(str, row.seeds)))
        cells += [_figure(row, name, precision) for name, (_, precision) in figures.items()]
        if "remark" in headings:
            cells.append(_remark(row))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _remark(row: Row) -> str:
    if row.failed:
        return f"failed {len(row.failed)} of {len(row.seeds)}: {row.failed[0]}"
    return f"stopped after epoch {row.pruned[0]}" if row.pruned else ""


def _figure(row: Row, name: str, precision: str) -> str:
    if name not in row.means:
        return "–"
    mean = f"{row.means[name]:{precision}}"
    spread = name != "seconds" and name in row.deviations
    return f"{mean} ± {row.deviations[name]:{precision}}" if spread else mean
