"""Curves, spectra and the histogram of angles."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from .._classes import Angles, Spectra
from .._convergence import Panel
from ._style import NotebookFigure

# safe for colour-blind readers; dashes and marks differ too
COLOURS = ("#0060a8", "#c4500a", "#007a5a", "#9c3f8c", "#7d6500", "#2f86bd", "#5a5f66", "#b0254a")
_DASHES: tuple[Any, ...] = (
    "-",
    (0, (6, 2)),
    (0, (1.5, 2)),
    (0, (7, 2, 1.5, 2)),
    (0, (10, 3)),
    (0, (3, 1.5)),
    ":",
    "-.",
)
MARKS = ("o", "s", "^", "D")


def literal(text: str) -> str:
    """Escape ``$``: names that people gave are not formulas."""
    return text.replace("$", r"\$")


def _typeset(text: str) -> str:
    text = literal(text)
    for written, meant in (("R^v_c", "$R^v_c$"), ("R^v", "$R^v$"), ("R_c", "$R_c$"), ("ΔR", r"$\Delta R$")):
        parts = text.split("$")
        parts[::2] = [part.replace(written, meant) for part in parts[::2]]
        text = "$".join(parts)
    return text


def single_axes(width: float = 4.6, height: float = 2.9) -> tuple[Figure, Any]:
    """A figure of one chart."""
    figure = NotebookFigure(figsize=(width, height))
    return figure, figure.add_subplot()


def curves(panel: Panel, *, seconds: bool) -> Figure:
    """One convergence chart."""
    figure, axes = single_axes()
    _draw(axes, panel, seconds)
    return figure


def convergence(panels: list[Panel], *, seconds: bool) -> Figure:
    """All charts of a run, two in a row. A chart of a single point is written as a number."""
    rows = -(-len(panels) // 2)
    columns = min(2, len(panels))
    figure = NotebookFigure(figsize=(4.8 * columns, 3.1 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.axis("off")
    for axes, panel in zip(grid.flat, panels, strict=False):
        if panel.single:
            _write(axes, panel)
        else:
            _draw(axes, panel, seconds)
    return figure


def _write(axes: Any, panel: Panel) -> None:
    axes.axis("off")
    numbers = "\n".join(f"{_typeset(curve.label)}: {curve.series.last:.4g}" for curve in panel.curves)
    axes.set_title(_typeset(panel.title))
    axes.text(0.5, 0.5, numbers, ha="center", va="center", fontsize=14, transform=axes.transAxes)


def _draw(axes: Any, panel: Panel, seconds: bool) -> None:
    named = set()
    for curve in panel.curves:
        x = curve.series.seconds if seconds else curve.series.epochs
        label = "_" if curve.label in named else _typeset(curve.label)
        named.add(curve.label)
        style = curve.style % len(COLOURS)
        shape: dict[str, Any] = {"color": COLOURS[style], "linestyle": _DASHES[style]}
        if curve.points or len(x) < 3:
            shape |= {"marker": MARKS[style % len(MARKS)], "markersize": 3.5, "linewidth": 0.8}
            shape["markevery"] = max(1, len(x) // 40)
        axes.plot(x, curve.series.values, label=label, **shape)
    below = None
    for line in sorted(panel.lines, key=lambda line: -line.value):
        axes.axhline(line.value, color="#555555", linestyle=":", linewidth=0.9)
        close = below is not None and below - line.value < 0.05 * abs(below)  # its label would touch the one above
        axes.annotate(
            _typeset(line.label), (1, line.value), (-2, -2 if close else 2), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="right", va="top" if close else "bottom", fontsize=7, color="#333333",
        )  # fmt: skip
        below = line.value
    if panel.log:
        axes.set_yscale("log")
    axes.margins(y=0.08)
    axes.set_xlabel("seconds of training" if seconds else "epoch")
    axes.set_ylabel(_typeset(panel.title))
    if len(named) > 1 or any(curve.points for curve in panel.curves):
        axes.legend(fontsize=7, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def spectra(found: Spectra) -> Figure:
    """One thin line per class, the median, and the even class."""
    figure, axes = single_axes()
    number = range(1, len(found.median) + 1)
    for row in found.values:
        if row[0] > 0:
            axes.plot(
                number, row.clip(1e-8), color="#8a8f96", linewidth=0.5, alpha=max(0.15, min(0.6, 8 / len(found.values)))
            )
    axes.plot(number, found.median.clip(1e-8), color=COLOURS[0], linewidth=1.8, label="median class")
    if found.ideal:
        end = min(found.components, len(found.median))
        axes.plot([1, end], [found.ideal] * 2, color="#333333", linestyle=":", label="even over ⌊d/k⌋")
    axes.set_yscale("log")
    axes.set_ylim(bottom=max(float(found.values.max()) * 1e-5, 1e-7))
    axes.set_xlabel("eigenvalue number")
    axes.set_ylabel("eigenvalue of the class's second moment")
    axes.legend(fontsize=7)
    return figure


def angle_histogram(found: Angles) -> Figure:
    """The smallest angle of every two classes."""
    figure, axes = single_axes()
    width = 90 / len(found.histogram)
    axes.bar(
        [width * i for i in range(len(found.histogram))], found.histogram, width * 0.92, align="edge", color=COLOURS[0]
    )
    axes.set_xlim(0, 90)
    axes.set_xlabel("smallest principal angle in degrees")
    axes.set_ylabel("pairs of classes")
    return figure
