"""A map of features in two dimensions that is made for features on class subspaces.

A good run's features fill all directions evenly, so their principal components say nothing: any two are as good. So
the map shows what the classifier sees. Each class has a place on a circle. A sample has for each class the share of its
squared length inside that class's subspace, and stands at the mean of the places, weighted by these shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ._inner import chosen_classes, unit_rows
from ._read import Array, RunRecord

_FITTED = 500
"""training samples of a class that its subspace is computed from, at most"""


class FeatureMap(NamedTuple):
    """Samples of a few classes on a plane."""

    points: Array
    """(n, 2), inside the polygon of the anchors; (0, 0) is outside all these subspaces"""
    labels: Array
    """(n,) places in ``classes``"""
    shares: Array
    """(n, c): how much of the sample's squared length lies in each class's subspace"""
    classes: list[int]
    """their numbers, neighbours on the circle are those with most in common"""
    anchors: Array
    """(c, 2): where a sample stands that lies in one class's subspace alone"""
    unseen: bool
    """whether the samples were not trained on"""


def feature_map(run: RunRecord, per_class: int = 60, classes: Sequence[int] | None = None) -> FeatureMap | None:
    """Of ten classes, evenly spaced by number, or of those that are given; None if the run folder has no features.

    The subspaces are those of the kept training features. A class's has as many dimensions as the class fills (its
    effective rank), at most as many as the run's classifier takes. The samples are the kept ones that were not trained
    on, if there are any.
    """
    if "features" not in run.tensors or not run.num_classes:
        return None
    shown = run.shown_classes
    wanted = [shown[at] for at in chosen_classes(len(shown))] if classes is None else list(classes)
    features, labels = run.tensors["features"], run.tensors["labels"]
    dim = features.shape[1]
    components = int(run.config.get("components") or 0) or max(1, dim // run.num_classes)
    kept = [j for j in wanted if (labels == j).any()]
    if not kept:
        return None
    bases = [_basis(features[labels == j][:_FITTED], components) for j in kept]
    unseen = bool(np.isin(run.tensors.get("unseen_labels", np.empty(0)), kept).any())
    name = "unseen_" if unseen else ""
    z, own = _samples(run.tensors[f"{name}features"], run.tensors[f"{name}labels"], kept, per_class)
    shares = np.stack([np.square(z @ basis).sum(1) for basis in bases], axis=1)
    order = _around(shares, own)
    shares, own = shares[:, order], np.argsort(order)[own]
    anchors = _anchors(len(kept))
    # subspaces that overlap have shares of more than 1 together: their mean stays inside the polygon
    points = shares @ anchors / np.maximum(shares.sum(1, keepdims=True), 1.0)
    return FeatureMap(points, own, shares, [kept[at] for at in order], anchors, unseen)


def map_sentence(run: RunRecord, found: FeatureMap) -> str:
    """How much of a sample lies in its own class's subspace, and in the nearest other one."""
    rows = np.arange(len(found.labels))
    own = found.shares[rows, found.labels]
    kind = f"{run.unseen_words} sample" if found.unseen else "training sample"
    text = f"Of a {kind}, {own.mean():.0%} lies in the subspace of its own class on average"
    if len(found.classes) > 1:
        others = found.shares.copy()
        others[rows, found.labels] = -1.0
        text += f", and {others.max(1).mean():.0%} in that of the nearest other class shown"
    return text + "."


def _basis(members: Array, most: int) -> Array:
    """(d, r): the leading directions of a class's features, as many as its effective rank, rounded."""
    z = unit_rows(members)
    wide = len(z) < z.shape[1]  # the smaller of the two Gram matrices
    values, vectors = np.linalg.eigh(z @ z.T if wide else z.T @ z)
    rank = round(float(values.sum() ** 2 / max(np.square(values).sum(), 1e-12)))
    top = slice(None, -1 - max(1, min(rank, most)), -1)
    if not wide:
        return np.asarray(vectors[:, top])
    return np.asarray(z.T @ vectors[:, top] / np.sqrt(np.maximum(values[top], 1e-12)))


def _samples(features: Array, labels: Array, classes: list[int], per_class: int) -> tuple[Array, Array]:
    rows = [np.flatnonzero(labels == j)[:per_class] for j in classes]
    own = np.repeat(np.arange(len(classes)), [len(found) for found in rows])
    return unit_rows(features[np.concatenate(rows)]), own


def _around(shares: Array, own: Array) -> list[int]:
    """The classes in such an order that neighbours have much in common: from the first, always the nearest one left."""
    count = shares.shape[1]
    mean = np.stack([shares[own == j].mean(0) if (own == j).any() else np.zeros(count) for j in range(count)])
    common = mean + mean.T
    order = [0]
    while len(order) < count:
        left = [j for j in range(count) if j not in order]
        order.append(max(left, key=lambda j: (common[order[-1], j], -j)))
    return order


def _anchors(count: int) -> Array:
    """On a circle, from the top; of two classes at a right angle, so that half and half is not where neither is."""
    if count < 3:
        return np.eye(2)[:count]
    angles = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)
