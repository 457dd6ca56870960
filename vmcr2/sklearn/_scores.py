"""Turns the scores of a classifier into labels, probabilities and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ..classifiers import NearestSubspace
from ..inference import Array
from ._labels import refuse, shown, unseen


def relative_residuals(subspaces: NearestSubspace, z: Array) -> Array:
    """The share of ‖z‖² outside every class's subspace, (n, k), in [0, 1]; 1 where z is 0 or a class has no samples."""
    points = torch.tensor(z)  # a copy: torch warns of arrays that may not be written to
    energy = points.square().sum(1, keepdim=True)
    share = subspaces.residuals(points) / energy.clamp_min(torch.finfo(points.dtype).tiny)
    empty = (subspaces.bases == 0).all(2).all(1)
    share = torch.where((energy > 0) & ~empty, share, torch.ones_like(share))
    return np.asarray(share.numpy())


def with_moments(fitted: NearestSubspace, sizes: torch.Tensor) -> NearestSubspace:
    """The same subspaces, to which ``partial_fit`` can add.

    ``fit`` keeps no moments, but its bases and their energies are the leading part of them.
    """
    sizes = sizes.to(fitted.bases.dtype)
    subspaces = NearestSubspace(len(sizes), fitted.bases.shape[2])
    subspaces.scatter = (fitted.bases * (fitted.energies * sizes[:, None])[:, None]) @ fitted.bases.mT
    subspaces.sizes = sizes
    subspaces._stale = True
    return subspaces


class SubspaceScores(ClassifierMixin):  # type: ignore[misc]
    """Predictions from ``_residuals(X)``; the estimator sets classes_, temperature_, class_log_shift_, …"""

    classes_: Array
    temperature_: float
    class_log_shift_: Array
    holdout_novelty_: Array

    def _residuals(self, X: Any) -> Array:
        raise NotImplementedError

    def _raw_scores(self, X: Any) -> Array:
        return -self._residuals(X)

    def _scores(self, X: Any) -> Array:
        """(n, k): larger is likelier; softmax(scores / temperature_) are the probabilities."""
        return self._raw_scores(X) + self.temperature_ * self.class_log_shift_

    def residuals(self, X: Any) -> Array:
        """The share of every point's ‖z‖² outside every class's subspace (Eq. 8 of the paper), (n, k), in [0, 1]."""
        check_is_fitted(self)
        return self._residuals(X)

    def decision_function(self, X: Any) -> Array:
        """Minus the residuals or the head's logits, plus T times the classes' shift; with two classes the difference.

        The shift is β·log of the classes' shares of the training samples, and the logarithms of the class weights.
        """
        check_is_fitted(self)
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Array:
        """softmax(scores / T), (n, k), with the temperature T of the hold-out."""
        check_is_fitted(self)
        return np.asarray(softmax(self._scores(X) / self.temperature_, axis=1))

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of :meth:`predict_proba`."""
        check_is_fitted(self)
        return np.asarray(log_softmax(self._scores(X) / self.temperature_, axis=1))

    def novelty_score(self, X: Any) -> Array:
        """How far every point is from the nearest subspace, (n,): the smallest residual, in [0, 1]."""
        check_is_fitted(self)
        return np.asarray(self._residuals(X).min(axis=1))

    def predict(self, X: Any, reject: float | None = None, reject_label: Any = None) -> Array:
        """The likeliest class of every point, or a refusal.

        Args:
            X: points (n, n_features).
            reject: a number in (0, 1). It refuses points whose :meth:`novelty_score` is above this quantile of the
                held-out samples' scores. 0.95 refuses about one in twenty points of the known classes.
            reject_label: the label of refused points; by default −1 for integer labels, NaN for floats, "rejected" for
                strings, else None.
        """
        check_is_fitted(self)
        labels: Array = self.classes_[self._scores(X).argmax(axis=1)]
        if reject is None:
            return labels
        if not 0 < reject < 1:
            raise ValueError(f"reject must lie between 0 and 1 (a quantile of held-out samples), got {reject}")
        if not len(self.holdout_novelty_):
            raise ValueError("reject needs held-out samples, and there were none: fit on more samples")
        threshold = np.quantile(self.holdout_novelty_, reject)
        return refuse(labels, self.novelty_score(X) > threshold, reject_label, self.classes_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy. A label in y that ``fit`` has not seen is an error."""
        check_is_fitted(self)
        unknown = unseen(column_or_1d(y), self.classes_)
        if unknown:
            raise ValueError(f"y contains labels that were not seen in fit: {shown(unknown)}")
        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))
