"""Nearest subspace (Eq. 8) as a scikit-learn classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..classifiers import NearestSubspace
from ..inference import Array, Calibration, fit_calibration, log_shares
from ._arguments import check_components
from ._holdout import RECENT, holdout_by_content
from ._labels import encode, log_weights, need_two_classes, partial_classes
from ._notebook import LearnedInNotebooks
from ._scores import SubspaceScores, relative_residuals, with_moments
from ._undo import undone_on_failure

_HELD_OUT = 0.1


class NearestSubspaceClassifier(SubspaceScores, LearnedInNotebooks, BaseEstimator):  # type: ignore[misc]
    """Predicts the class whose subspace, spanned by its leading directions, leaves the smallest residual (Eq. 8).

    Args:
        n_components: dimensions per class; ⌊d/k⌋ by default, at least 1.
        fit_intercept: add a constant to every row, as large as a row is on average. Without it the subspaces go through
            the origin, as in the paper, which is right for the features of :class:`RateReductionEmbedding`.
        class_weight: None, "balanced" or a dict; shifts the decision by T·log w_j.

    ``sample_weight`` weighs the second moments Σ w z zᵀ. A tenth of the rows, chosen by a hash of their content,
    is first held out: it gives the temperature of ``predict_proba`` and the quantiles of ``reject``. The subspaces are
    then fitted to all rows.
    ``partial_fit`` adds batches (moments: k·d² numbers); its temperature comes from the latest batches, scored before
    they were learned. After ``fit`` it continues from the fitted subspaces; what is outside them is forgotten.

    Where the hold-out clearly asks for it, class sizes enter: the scores get T·β·log of the classes' shares.

    Attributes: ``classes_``, ``n_features_in_``, ``feature_names_in_``, ``subspaces_``
    (a :class:`vmcr2.NearestSubspace`), ``temperature_``, ``prior_share_`` (β), ``holdout_novelty_``.

    >>> X = np.array([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0], [0.1, 3.0]])
    >>> model = NearestSubspaceClassifier(fit_intercept=False).fit(X, ["flat", "flat", "steep", "steep"])
    >>> model.predict([[5.0, 0.2]]).tolist()
    ['flat']
    """

    def __init__(
        self, n_components: int | None = None, *, fit_intercept: bool = True, class_weight: Any = None
    ) -> None:
        self.n_components = n_components
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight

    @undone_on_failure()
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NearestSubspaceClassifier:
        """Learn the subspaces of these samples; earlier ones are forgotten."""
        X, y = validate_data(self, X, y, dtype=np.float64, order="C")
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        X, y, weights = X[weights > 0], y[weights > 0], weights[weights > 0]
        classes, labels = encode(y)
        need_two_classes(type(self).__name__, classes)
        self._check_components(X)
        logs = log_weights(self.class_weight, classes, y)
        self.classes_, self._class_logs = classes, logs
        self.intercept_ = _row_length(X, weights) if self.fit_intercept else 0.0
        rows = self._lifted(X)
        self._sizes: Array = np.bincount(labels, weights, minlength=len(classes))
        self._calibrate(rows, labels, weights, holdout_by_content(X, _HELD_OUT))
        self.subspaces_ = self._learn(rows, labels, weights)
        self._recent: tuple[Array, Array] | None = None
        return self

    @undone_on_failure("subspaces_")
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> NearestSubspaceClassifier:
        """Add a batch. The first call needs ``classes``, all labels that may come."""
        first = not hasattr(self, "classes_")
        known = partial_classes(type(self).__name__, classes, None if first else self.classes_)
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", reset=first)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        _, labels = encode(y, known)
        if first:
            self._begin(X, weights, known)
        elif self._recent is None:
            self.subspaces_ = with_moments(self.subspaces_, torch.as_tensor(self._sizes))
        rows = self._lifted(X)
        if not first:
            self._calibrate_on_recent(rows, labels)
        self.subspaces_.partial_fit(_tensor(rows, weights), torch.as_tensor(labels))
        self._sizes = self._sizes + np.bincount(labels, weights, minlength=len(known))
        self.classes_ = known
        return self

    def _begin(self, X: Array, weights: Array, classes: Array) -> None:
        self._check_components(X)
        self._class_logs = log_weights(self.class_weight, classes, classes, partial=True)
        self._sizes = np.zeros(len(classes))
        self.intercept_ = _row_length(X, weights) if self.fit_intercept else 0.0
        self.subspaces_ = NearestSubspace(len(classes), self.n_components)
        self._set_calibration(Calibration())
        self._recent = (np.empty((0, len(classes))), np.empty(0, dtype=np.int64))
        self.holdout_novelty_ = np.empty(0)

    def _calibrate_on_recent(self, rows: Array, labels: Array) -> None:
        seen, known = self._recent or (np.empty((0, len(self.classes_))), np.empty(0, dtype=np.int64))
        scores = np.concatenate([seen, -relative_residuals(self.subspaces_, rows)])[-RECENT:]
        self._recent = (scores, np.concatenate([known, labels])[-RECENT:])
        self._set_calibration(fit_calibration(*self._recent, log_prior=log_shares(self._sizes)))
        self.holdout_novelty_ = -scores.max(axis=1)

    def _calibrate(self, rows: Array, labels: Array, weights: Array, held: Array) -> None:
        kept = ~held
        if not held.any() or len(np.unique(labels[kept])) < len(self.classes_):
            held, kept = np.ones_like(held), np.ones_like(held)  # too few to hold any out
        scores = -relative_residuals(self._learn(rows[kept], labels[kept], weights[kept]), rows[held])
        self._set_calibration(fit_calibration(scores, labels[held], weights[held], log_shares(self._sizes)))
        self.holdout_novelty_ = -scores.max(axis=1)

    def _set_calibration(self, found: Calibration) -> None:
        self.temperature_, self.prior_share_ = found.temperature, found.prior_share
        self.class_log_shift_ = self._class_logs + found.prior_share * log_shares(self._sizes)

    def _learn(self, rows: Array, labels: Array, weights: Array) -> NearestSubspace:
        subspaces = NearestSubspace(len(self.classes_), self.n_components)
        return subspaces.fit(_tensor(rows, weights), torch.as_tensor(labels))

    def _check_components(self, X: Array) -> None:
        check_components(self.n_components, X.shape[1] + bool(self.fit_intercept), "the number of dimensions")

    def _lifted(self, X: Array) -> Array:
        return np.column_stack([X, np.full(len(X), self.intercept_)]) if self.fit_intercept else X

    def _residuals(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return relative_residuals(self.subspaces_, self._lifted(X))


def _row_length(X: Array, weights: Array) -> float:
    total = weights.sum()
    squared = float(weights @ np.square(X).sum(axis=1)) / total if total > 0 else 0.0
    return float(np.sqrt(squared)) or 1.0


def _tensor(rows: Array, weights: Array) -> torch.Tensor:
    # Σ w z zᵀ is the second moment of rows that are multiplied by √w
    return torch.as_tensor(rows * np.sqrt(weights)[:, None])
