"""The map of features, and how often each class was right."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .._class_table import recalls
from .._feature_map import FeatureMap
from .._mistakes import Answers
from .._read import RunRecord
from ._curves import COLOURS, MARKS, literal, single_axes

_NAMED = 40
"""classes: up to so many, each has a bar and a name"""


def feature_map(found: FeatureMap, run: RunRecord) -> Figure:
    """Samples between the places of their classes."""
    figure, axes = single_axes(4.6, 4.6)
    _edges(axes, found)
    for place, number in enumerate(found.classes):
        x, y = found.points[found.labels == place].T
        colour, mark = COLOURS[place % len(COLOURS)], MARKS[place // len(COLOURS) % len(MARKS)]
        axes.plot(x, y, mark, color=colour, markersize=3.5, alpha=0.75, markeredgewidth=0, label=run.name(number))
        at = found.anchors[place] * 1.08
        axes.annotate(
            _short(run.name(number)), at, color=colour, fontsize=8, annotation_clip=False,
            ha="center" if abs(at[0]) < 0.1 else "left" if at[0] > 0 else "right",
            va="center" if abs(at[1]) < 0.1 else "bottom" if at[1] > 0 else "top",
        )  # fmt: skip
    axes.set_aspect("equal")
    axes.axis("off")
    kind = run.unseen_words if found.unseen else "training"
    axes.set_title(f"{kind} samples, by their shares in the class subspaces", pad=18)
    return figure


def _edges(axes: Any, found: FeatureMap) -> None:
    """The polygon of the anchors, and the middle, which is outside all subspaces."""
    corners = found.anchors if len(found.anchors) > 2 else np.concatenate([np.zeros((1, 2)), found.anchors])
    axes.fill(*corners.T, fill=False, edgecolor="#c8c8c8", linewidth=0.8)
    axes.plot([0], [0], "+", color="#999999", markersize=6)


def recall(found: Answers, run: RunRecord) -> Figure:
    """A bar for each class, worst first; of many classes a curve."""
    classes, shares = recalls(found)
    mean = float(shares.mean())
    if len(classes) <= _NAMED:
        figure, axes = single_axes(4.6, 0.9 + 0.19 * len(classes))
        axes.barh(np.arange(len(classes)), shares, 0.75, color=COLOURS[0])
        axes.set_yticks(range(len(classes)), [_short(run.name(int(j))) for j in classes], fontsize=7)
        axes.invert_yaxis()
        axes.axvline(mean, color="#333333", linestyle=":", linewidth=1)
        axes.set_xlabel(_label(run, mean))
        axes.set_xlim(0, 1)
        axes.grid(visible=False)
        return figure
    figure, axes = single_axes()
    axes.plot(np.arange(1, len(classes) + 1), shares, color=COLOURS[0], drawstyle="steps-mid")
    axes.axhline(mean, color="#333333", linestyle=":", linewidth=1)
    axes.annotate(f"worst: {_short(run.name(int(classes[0])))}", (1, shares[0]), (6, 0), textcoords="offset points",
                  fontsize=7, va="center")  # fmt: skip
    axes.set_xlabel("classes, worst first")
    axes.set_ylabel(_label(run, mean))
    axes.set_ylim(0, 1.02)
    return figure


def _label(run: RunRecord, mean: float) -> str:
    return f"share of {run.unseen_words} samples that were right (dotted: mean, {mean:.3f})"


def _short(name: str) -> str:
    return literal(name if len(name) <= 16 else name[:15] + "…")
