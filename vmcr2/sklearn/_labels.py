"""Encodes and weighs class labels, and marks refused points."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from ._undo import CALLER

Array = np.ndarray[Any, Any]


def encode(y: Array, classes: Array | None = None) -> tuple[Array, Array]:
    """The sorted classes, and every label's place among them."""
    check_classification_targets(y)
    if classes is None:
        found, codes = np.unique(y, return_inverse=True)
        return found, codes.astype(np.int64)
    unknown = unseen(y, classes)
    if unknown:
        raise ValueError(f"y contains labels that are not among classes: {shown(unknown)}")
    return classes, np.searchsorted(classes, y).astype(np.int64)


def partial_classes(name: str, given: Any, known: Array | None) -> Array:
    """All classes of ``partial_fit``: the first call gives them, later calls may repeat them."""
    if known is None:
        if given is None:
            raise ValueError("the first call of partial_fit needs classes: all labels that can occur")
        known = np.unique(given)
        need_two_classes(name, known)
    elif given is not None and not np.array_equal(np.unique(given), known):
        raise ValueError(
            f"classes={given!r} is not the same as on last call to partial_fit, was: {known.tolist()}; "
            "leave classes out, or start again with a clone"
        )
    return known


def unseen(y: Array, classes: Array) -> list[Any]:
    """Labels that are not among the classes."""
    known = set(classes.tolist())
    return sorted({label for label in np.asarray(y).tolist() if label not in known}, key=str)


def shown(labels: list[Any], most: int = 5) -> str:
    """A few labels for an error message."""
    return ", ".join(repr(label) for label in labels[:most]) + (", …" if len(labels) > most else "")


def need_two_classes(name: str, classes: Array) -> None:
    """With one class there is nothing to learn."""
    if len(classes) < 2:
        raise ValueError(
            f"{name} needs samples of at least two classes, but y has one class: {shown(classes.tolist())}"
        )


def warn_of_single_samples(classes: Array, codes: Array) -> None:
    """A class of one sample has no spread to learn: its subspace is a line, and none of it can be held out."""
    single = classes[np.bincount(codes, minlength=len(classes)) == 1]
    if len(single):
        warnings.warn(
            f"these classes have one sample, so their subspaces are lines: {shown(single.tolist())}; add samples or "
            "leave the classes out",
            UserWarning,
            stacklevel=CALLER,
        )


def log_weights(class_weight: Any, classes: Array, y: Array, *, partial: bool = False) -> Array:
    """log w_j of scikit-learn's ``class_weight``."""
    if partial and class_weight == "balanced":
        raise ValueError("class_weight='balanced' needs all samples: with partial_fit give a dict of weights")
    weights = compute_class_weight(class_weight, classes=classes, y=y)
    if np.any(weights <= 0):
        raise ValueError(f"class_weight must be above 0 for every class, got {weights.min():g}")
    return np.asarray(np.log(weights))


def refuse(labels: Array, refused: Array, reject_label: Any, classes: Array) -> Array:
    """Labels with ``reject_label`` where refused; by default −1, NaN or "rejected", depending on the labels' type."""
    kind = labels.dtype.kind
    words = kind == "U" or (kind == "O" and all(isinstance(label, str) for label in classes))
    if reject_label is None:
        if kind in "bu":
            raise ValueError(f"labels of type {labels.dtype} have no value for refused points: give reject_label=")
        reject_label = "rejected" if words else {"i": -1, "f": np.nan}.get(kind)
    if reject_label in set(classes.tolist()):
        raise ValueError(f"reject_label {reject_label!r} is the name of a class: choose another")
    # a string may need more room; a reject_label of another type must not change the type of the labels
    same = np.asarray(reject_label).dtype.kind == kind
    result = labels.astype(np.result_type(labels.dtype, np.asarray(reject_label)) if same else object)
    result[refused] = reject_label
    return result
