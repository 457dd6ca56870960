"""Heat maps and pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .._classes import Angles, Codes
from .._inner import InnerProducts, chosen_classes
from .._read import Array
from ._curves import literal
from ._style import NotebookFigure

_RAMP = "Blues"
_NAMED = 20


def inner_maps(found: list[tuple[str, InnerProducts, list[str]]]) -> Figure:
    """|ZZᵀ| of several runs side by side, with their within and between figures."""
    columns = min(4, len(found))
    rows = -(-len(found) // columns)
    figure = NotebookFigure(figsize=(3.2 * columns, 3.5 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(found) :]:
        axes.axis("off")
    for axes, (label, inner, names) in zip(grid.flat, found, strict=False):
        image = axes.imshow(inner.values, cmap=_RAMP, vmin=0, vmax=1, interpolation="nearest")
        ends = np.cumsum(inner.sizes)
        for end in ends[:-1]:
            axes.axhline(end - 0.5, color="#777777", linewidth=0.3)
            axes.axvline(end - 0.5, color="#777777", linewidth=0.3)
        _ticks(axes, [names[j] for j in inner.classes], (ends - np.array(inner.sizes) / 2 - 0.5).tolist())
        axes.set_title(literal(label))
        axes.set_xlabel(f"mean: {inner.within:.3f} in a class, {inner.between:.3f} between classes", fontsize=8)
    figure.colorbar(image, ax=grid, shrink=0.7, label="|cosine|")
    return figure


def angles(found: Angles, names: list[str]) -> Figure:
    """The smallest principal angle between classes."""
    return _map(found.smallest, names, "smallest principal angle in degrees", cmap=f"{_RAMP}_r", vmin=0, vmax=90)


def atoms(found: Codes, names: list[str]) -> Figure:
    """Shares of a class's codes on every class's atoms, on a square-root scale."""
    figure = _map(found.blocks, names, "share of the class's codes", cmap=_RAMP, norm="sqrt", vmin=0, vmax=1)
    figure.axes[0].set(xlabel="atoms latched for", ylabel="class")
    return figure


def confusion(table: Array, names: list[str]) -> Figure:
    """Shares of the row, on a square-root scale."""
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    figure = _map(shares, names, "share of the class's images", cmap=_RAMP, norm="sqrt", vmin=0, vmax=1)
    figure.axes[0].set(xlabel="answer", ylabel="class")
    return figure


def _map(values: Array, names: list[str], label: str, *, norm: str | None = None, **options: Any) -> Figure:
    from matplotlib.colors import PowerNorm

    figure = NotebookFigure(figsize=(4.4, 3.8), layout="constrained")
    axes = figure.add_subplot()
    if norm == "sqrt":
        options["norm"] = PowerNorm(0.5, vmin=options.pop("vmin"), vmax=options.pop("vmax"))
    image = axes.imshow(values, interpolation="nearest", **options)
    if len(names) <= _NAMED:
        _ticks(axes, names, list(range(len(names))))
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, shrink=0.8, label=label)
    return figure


def _ticks(axes: Any, names: list[str], places: list[float]) -> None:
    shown = [literal(name if len(name) <= 14 else name[:13] + "…") for name in names]
    axes.set_xticks(places, shown, fontsize=6, rotation=90 if max(map(len, shown), default=0) > 2 else 0)
    axes.set_yticks(places, shown, fontsize=6)
    axes.grid(visible=False)
    axes.tick_params(length=0)


def nearest(pictures: Array, names: list[str]) -> Figure:
    """A row of pictures for each of at most ten classes."""
    classes = chosen_classes(len(pictures))
    shown = pictures[classes]
    rows, columns, channels, height, width = shown.shape
    gap = max(1, height // 16)
    sheet = np.full((rows, height + gap, columns, width + gap, channels), 255, np.uint8)
    sheet[:, :height, :, :width] = shown.transpose(0, 3, 1, 4, 2)
    figure = NotebookFigure(figsize=(0.55 * columns + 1, 0.55 * rows))
    axes = figure.add_subplot()
    _show(axes, sheet.reshape(rows * (height + gap), columns * (width + gap), channels).transpose(2, 0, 1))
    places = [(height + gap) * i + height / 2 for i in range(rows)]
    axes.set_yticks(places, [literal(names[j][:16]) for j in classes], fontsize=7)
    axes.tick_params(length=0)
    return figure


def mistakes(found: tuple[Array, Array, Array], name: Callable[[int], str]) -> Figure:
    """The worst mistakes: each picture with its class and the answer."""
    pictures, true, taken_for = found
    columns = min(8, len(pictures))
    rows = -(-len(pictures) // columns)
    figure = NotebookFigure(figsize=(1.05 * columns, 1.3 * rows))
    axes = figure.add_axes((0, 0, 1, 1))  # one axes for all: 32 separate ones take seconds
    for n in range(len(pictures)):
        x, y = 1.25 * (n % columns), 1.55 * (n // columns)
        _show(axes, pictures[n, 0], extent=(x, x + 1, y + 1, y))
        words = f"{name(int(true[n]))[:14]}\nas {name(int(taken_for[n]))[:14]}"
        axes.text(x + 0.5, y - 0.04, literal(words), fontsize=6, ha="center", va="bottom")
    axes.set_xlim(-0.1, 1.25 * columns)
    axes.set_ylim(1.55 * rows - 0.4, -0.5)
    return figure


def _show(axes: Any, picture: Array, **options: Any) -> None:
    axes.imshow(picture.transpose(1, 2, 0), cmap="gray", vmin=0, vmax=255, interpolation="nearest", **options)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
