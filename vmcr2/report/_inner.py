"""|ZZᵀ| of ten classes, sorted by class: Figure 2 of the paper."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._read import Array, RunRecord

_CLASSES = 10


class InnerProducts(NamedTuple):
    """Absolute cosines between samples of some classes; ``sizes`` are the classes' numbers of samples, in order."""

    values: Array
    classes: list[int]
    sizes: list[int]
    within: float
    """mean |cosine| of two samples of a class, self-pairs left out"""
    between: float


def chosen_classes(num_classes: int, count: int = _CLASSES) -> list[int]:
    """Evenly spaced classes, so that the choice is neutral.

    >>> chosen_classes(100)
    [0, 11, 22, 33, 44, 55, 66, 77, 88, 99]
    """
    if num_classes <= count:
        return list(range(num_classes))
    return [round(float(j)) for j in np.linspace(0, num_classes - 1, count)]


def inner_products(run: RunRecord, per_class: int) -> InnerProducts | None:
    """From the sampled training features of the run folder; None if it has none."""
    if "features" not in run.tensors or "labels" not in run.tensors or not run.num_classes:
        return None
    features, labels = run.tensors["features"], run.tensors["labels"]
    shown = run.shown_classes
    classes = [shown[at] for at in chosen_classes(len(shown))]
    rows = [np.flatnonzero(labels == j)[:per_class] for j in classes]
    kept = [(j, found) for j, found in zip(classes, rows, strict=True) if len(found)]
    if not kept:
        return None
    index = np.concatenate([found for _, found in kept])
    z = unit_rows(features[index])
    values = np.abs(z @ z.T).clip(0.0, 1.0)
    same = labels[index][:, None] == labels[index]
    apart = ~np.eye(len(index), dtype=bool)
    return InnerProducts(
        values,
        [j for j, _ in kept],
        [len(found) for _, found in kept],
        _mean(values[same & apart]),
        _mean(values[~same]),
    )


def unit_rows(features: Array) -> Array:
    """Features in float64 and of unit length, which half precision changed a little."""
    z = features.astype(np.float64)
    unit: Array = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    return unit


def inner_sentence(run: RunRecord, inner: InnerProducts) -> str:
    """Means within and between classes, of what is shown and of the training set."""
    text = f"In this picture: {cosines_in_words(inner.within, inner.between)}"
    within, between = run.figure("within_cosine"), run.figure("between_cosine")
    if within is not None and between is not None:
        text += f" Of the whole training set: {within:.3f} and {between:.3f}."
    return text


def cosines_in_words(within: float, between: float) -> str:
    """Both means, and how they compare.

    >>> cosines_in_words(0.4, 0.02)
    'two samples of one class have a mean |cosine| of 0.400, and two of different classes 0.020, 20 times smaller.'
    """
    text = f"two samples of one class have a mean |cosine| of {within:.3f}, and two of different classes {between:.3f}"
    return text + (f", {within / between:.3g} times smaller." if within > between > 1e-9 else ".")


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else 0.0
