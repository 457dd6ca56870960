"""Figure 1 of the paper and related charts: which quantities go into which panel, and their values in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ._groups import Group
from ._paper import paper_figures
from ._read import RunRecord
from ._series import Series, read_series

_POINTS = 600
_ALL_POINTS = 2400


class Curve(NamedTuple):
    """A series, and how it is drawn: ``style`` is a colour with its dashes, ``points`` draws marks."""

    run: int
    label: str
    style: int
    points: bool
    series: Series


class Line(NamedTuple):
    """A level drawn across the panel."""

    value: float
    label: str


@dataclass
class Panel:
    """One chart over epochs or seconds."""

    key: str
    title: str
    how: str
    log: bool = False
    top: float | None = None
    """where the axis ends, for values that cannot exceed it"""
    curves: list[Curve] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    absent: str = ""
    says: str = ""

    @property
    def single(self) -> bool:
        """Whether there is one point of each curve: a number says more than such a chart."""
        return bool(self.curves) and all(len(curve.series.values) == 1 for curve in self.curves)


class _Quantity(NamedTuple):
    name: str
    label: str
    final: str | None = None
    """the summary's figure that is measured in the same way after the last epoch"""
    points: bool = False


_BATCH = _Quantity("batch_delta_r", "batch")
_FULL = _Quantity("train_delta_r", "full train", "train_delta_r", points=True)
_R, _RC = _Quantity("expansion", "R"), _Quantity("compression", "R_c")
_RV, _RVC = _Quantity("variational_expansion", "R^v"), _Quantity("variational_compression", "R^v_c")


def convergence_panels(runs: list[RunRecord], groups: list[Group], labels: list[str], styles: list[int]) -> list[Panel]:
    """All panels. A panel without a series says why."""
    alone = len(runs) == 1
    draw = _Drawing(runs, _group_labels(groups, labels, styles), styles)
    delta = Panel(
        "delta",
        "ΔR, the rate reduction",
        "Higher is better: all features together fill the space, and each class fills only a small part of it. «Batch» "
        "is the epoch's last batch, as it was trained on; «full train» is all training samples. With few samples per "
        "class in a batch the two differ, and a high batch ΔR alone says little.",
    )
    draw.fill(delta, [_BATCH, _FULL])
    delta.lines = _most(runs, "most_delta", "at most") + _paper_delta(runs)
    rates = [
        Panel("rates", "R and R_c", "R rises as all features together spread; R_c falls as each class narrows.")
        if alone
        else Panel("expansion", "R, of all features", "Rises as all features together spread out. Of the last batch.")
    ]
    draw.fill(rates[0], [_R, _RC] if alone else [_R])
    rates[0].lines = _most(runs, "most_expansion", "R is at most")
    if not alone:
        rates.append(Panel("compression", "R_c, within classes", "Falls as each class narrows. Of the last batch."))
        draw.fill(rates[1], [_RC])
    how = (
        "The variational terms that update Γ and A. They are other numbers than R and R_c, and R^v is not "
        "bounded by R's maximum: with free codes it exceeds it."
    )
    absent = "Only V-MCR² has a dictionary."
    title = "R^v and R^v_c, of the dictionary" if alone else "R^v, of the dictionary"
    variational = [Panel("variational", title, how, absent=absent)]
    draw.fill(variational[0], [_RV, _RVC] if alone else [_RV])
    if variational[0].curves:
        variational[0].lines = _most(runs, "most_expansion", "R's maximum (no bound here)")
        if not alone:
            short = "Its counterpart within classes. Another number than R_c."
            variational.append(Panel("variational-compression", "R^v_c, of dictionary and codes", short))
            draw.fill(variational[1], [_RVC])
    mismatch = Panel(
        "mismatch",
        "M, the mismatch",
        "How far the classes' second moments are from those that dictionary and codes describe. Logarithmic.",
        log=True,
        absent="Only V-MCR² has a mismatch.",
    )
    draw.fill(mismatch, [_Quantity("mismatch", "M")])
    rate = Panel("lr", "Learning rate", "The schedule of the optimiser's step.")
    draw.fill(rate, [_Quantity("lr", "learning rate")])
    panels = [delta, *rates, *variational, mismatch, _accuracy(runs, draw), rate]
    for panel in panels:
        panel.says = _says(panel, runs)
    return panels


class _Drawing:
    """Puts the series of all runs into panels."""

    def __init__(self, runs: list[RunRecord], labels: list[str], styles: list[int]) -> None:
        self.runs, self.labels, self.styles = runs, labels, styles
        self.limit = min(_POINTS, max(150, _ALL_POINTS // len(runs)))

    def fill(self, panel: Panel, quantities: list[_Quantity]) -> None:
        several = len(quantities) > 1
        for index, run in enumerate(self.runs):
            for number, quantity in enumerate(quantities):
                final = run.figure(quantity.final) if quantity.final else None
                series = read_series(run, quantity.name, self.limit, final)
                if series is None:
                    continue
                if len(self.runs) == 1:
                    label, style = quantity.label, number
                else:
                    label = f"{self.labels[index]}: {quantity.label}" if several else self.labels[index]
                    style = self.styles[index]
                panel.curves.append(Curve(index, label, style, quantity.points, series))


def _group_labels(groups: list[Group], labels: list[str], styles: list[int]) -> list[str]:
    """A legend names a group once, unless its runs have different styles."""
    named = list(labels)
    for group in groups:
        if len({styles[i] for i in group.runs}) == 1:
            for i in group.runs:
                named[i] = group.label + (f" ({len(group.runs)} runs)" if len(group.runs) > 1 else "")
    return named


def _accuracy(runs: list[RunRecord], draw: _Drawing) -> Panel:
    panel = Panel(
        "accuracy",
        "Accuracy, nearest subspace",
        "On samples that were not trained on. The test samples are read once, at the end; hold-out samples are "
        "training samples set aside, and their figure is not a test figure.",
        top=1.0,
    )
    for index, run in enumerate(runs):
        kind = run.unseen_words
        name = f"{run.unseen}_accuracy"
        series = read_series(run, name, draw.limit, run.figure(name))
        if series is not None:
            label = kind if len(runs) == 1 else f"{draw.labels[index]}: {kind}"
            panel.curves.append(Curve(index, label, draw.styles[index], True, series))
    known = {
        (found.accuracy, run.objective_name)
        for run in runs
        if (found := paper_figures(run.recipe, run.objective)) and run.unseen == "test"
    }
    panel.lines = [Line(value, f"paper, {objective}: test {value:.4f}") for value, objective in sorted(known)]
    panel.absent = "Nothing was measured yet. Accuracy is measured at the end of a run; with a hold-out also during it."
    return panel


def _most(runs: list[RunRecord], name: str, label: str) -> list[Line]:
    values = sorted({round(value, 6) for run in runs if (value := getattr(run, name)) is not None})
    return [Line(value, f"{label} {value:.1f}") for value in values[:3]]


def _paper_delta(runs: list[RunRecord]) -> list[Line]:
    found = [(paper_figures(run.recipe, run.objective), run.objective_name) for run in runs]
    known = sorted({(figures.delta_r, name) for figures, name in found if figures and figures.delta_r is not None})
    return [Line(value, f"paper, {name}: «Training ΔR» {value:.1f}") for value, name in known[:4]]


def _says(panel: Panel, runs: list[RunRecord]) -> str:
    """The latest values in words; for several runs with one label, their range."""
    if not panel.curves:
        return panel.absent or "The run has no such figures yet."
    latest: dict[str, list[float]] = {}
    for curve in panel.curves:
        latest.setdefault(curve.label, []).append(curve.series.last)
    parts = []
    for label, values in latest.items():
        low, high = min(values), max(values)
        parts.append(f"{label} {low:.4g}" + (f" to {high:.4g}" if high != low else ""))
    at = {run.epochs_done for run in runs}
    text = f"After epoch {max(at)}: " if len(at) == 1 else "At the end: "
    limits = "; ".join(line.label for line in panel.lines)
    return text + "; ".join(parts) + (f". {limits[0].upper()}{limits[1:]}." if limits else ".")
