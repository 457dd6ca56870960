"""A network trained by rate reduction, and the nearest subspace on its features."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..classifiers import NearestSubspace
from ..data import stratified
from ..objectives import OBJECTIVES
from ._arguments import check_components, keep_arguments, number, whole
from ._calibration import Array, fit_temperature
from ._labels import encode, log_weights, need_pairs, need_two_classes
from ._partial import PartialFit, head_of
from ._scores import SubspaceScores, relative_residuals
from ._training import EarlyStopping, Plan
from ._undo import undone_on_failure


class RateReductionClassifier(SubspaceScores, PartialFit):
    """Learns features on mutually orthogonal class subspaces, and predicts the class of the nearest subspace.

    Args:
        objective: "vmcr2" (variational, the default), "mcr2" (exact) or "ce" (cross-entropy, for comparison; it
            predicts by its linear head).
        n_components: dimensions of every class's subspace; ⌊dim/k⌋ by default.
        dim: the number of features d; by default 13 per class up to 128, at least 5 per class, at most 512
            (or one per class, if more).
        hidden: widths of the default network's layers (Linear, BatchNorm, ReLU).
        network: another network: a ``torch.nn.Module`` (copied, not changed) or a function (in_features, dim) -> one.
        epochs: passes over the data; by default about 300 steps, at most 200 epochs (100 for mcr2 and ce), at least 30.
        batch_size: the largest batch. An epoch has even batches of at most this size; a rest that cannot be
            divided evenly is left out. BatchNorm needs two samples, so 1 means 2.
        lr: learning rate at the start; with every step it falls along a cosine, to 0. By default 0.3 (vmcr2), 0.03
            (mcr2), 1.0 (ce).
        weight_decay: by default 2e-3 (vmcr2) or 5e-4.
        eps_sq: ε² of the coding rates.
        weight: how strictly V-MCR²'s dictionary must fit, see :class:`vmcr2.VMCR2Loss`.
        batch_expansion: β of V-MCR².
        atoms_per_class: of V-MCR²'s dictionary; by default 2·dim/k, between 2 and 12.
        early_stopping: stop when the accuracy on the hold-out has not risen for ``n_iter_no_change`` epochs, and
            restore the best state.
        validation_fraction: the part of the samples that is held out, each class by its share, for the temperature,
            ``reject`` and early stopping. With 0, or where that would be fewer than one sample for each class, they use
            the training samples, on which the classifier is too confident.
        n_iter_no_change: patience of early stopping, in epochs.
        standardize: bring every column to mean 0 and variance 1. False is better for pixels and other columns of one
            kind, given on a scale of about 1.
        class_weight: None, "balanced" or a dict: rate reductions draw samples by it and shift the decision by
            T·log w_j; cross-entropy weighs its terms.
        random_state: an integer, which is the seed itself, or a ``RandomState``. Torch's own random numbers stay.
        verbose: 1 shows a progress bar.
        device: where to train, "cpu" or "cuda".

    ``fit`` takes ``sample_weight`` for cross-entropy only: a coding rate belongs to a set of points and has no
    term per sample to weigh.

    Attributes: ``classes_``, ``n_features_in_``, ``feature_names_in_``, ``network_``, ``classifier_`` (a
    :class:`vmcr2.NearestSubspace`), ``head_`` (cross-entropy's linear layer, else None), ``temperature_``,
    ``loss_curve_`` (about 20 values over the run), ``validation_scores_`` (with early stopping), ``n_iter_``,
    ``holdout_novelty_``.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RateReductionClassifier(epochs=30, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    validation_scores_: list[float]

    def __init__(
        self,
        objective: str = "vmcr2",
        *,
        n_components: int | None = None,
        dim: int | None = None,
        hidden: tuple[int, ...] = (256, 256),
        network: Any = None,
        epochs: int | None = None,
        batch_size: int = 500,
        lr: float | None = None,
        weight_decay: float | None = None,
        eps_sq: float = 0.5,
        weight: float = 20.0,
        batch_expansion: float = 0.3,
        atoms_per_class: int | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 30,
        standardize: bool = True,
        class_weight: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        device: str = "cpu",
    ) -> None:
        keep_arguments(self, locals())

    @undone_on_failure()
    def fit(self, X: Any, y: Any, **fit_params: Any) -> RateReductionClassifier:
        """Train a new network and learn the subspaces of its features.

        The only further argument is ``sample_weight``, for ``objective="ce"`` only.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, order="C")
        weights = self._sample_weight(X, fit_params)
        classes, labels = encode(y)
        need_two_classes(type(self).__name__, classes)
        need_pairs(type(self).__name__, classes, labels)
        plan = self._checked_plan(len(classes), len(X))
        logs = log_weights(self.class_weight, classes, y)
        held = held_out(labels, self.validation_fraction, plan)
        if not held.any():
            held, kept = np.ones_like(held), np.ones_like(held)
        else:
            kept = ~held
        trainer = self._new_trainer(X[kept], plan, torch.as_tensor(labels[kept]))
        if np.ptp(logs) > 0:  # drawn by class weights, any class may fill a batch
            trainer.objective.make_room(plan.optim.batch_size)
        data = self._samples(trainer, X[kept], labels[kept], logs, weights[kept])
        stop = None
        if self.early_stopping:
            aside = self._samples(trainer, X[held], labels[held])
            stop = EarlyStopping(trainer, data, aside, self.n_components, self.n_iter_no_change)
        self._run(trainer, data, stop)
        if hasattr(self, "validation_scores_"):
            del self.validation_scores_
        if stop is not None:
            stop.go_back()
            self.validation_scores_ = stop.scores
        self.classes_ = classes
        self._trainer, self._fitted_trainer = None, trainer
        self._weigh(logs)
        self._keep(trainer)
        self.head_ = head_of(trainer)
        self.classifier_ = self._subspaces_of(X[kept], labels[kept])
        self._calibrate(self._raw_scores(X[held]), labels[held], self._novelty(X[held]))
        return self

    def _scores(self, X: Any) -> Array:
        if self.head_ is None:
            return super()._scores(X)
        return self._raw_scores(self._validated(X))

    def novelty_score(self, X: Any) -> Array:
        """How far every point is from the known classes, (n,), in [0, 1].

        Rate reductions: the share of ‖z‖² outside the nearest subspace. Cross-entropy: 1 − the largest softmax.
        """
        check_is_fitted(self)
        return self._novelty(self._validated(X))

    def _residuals(self, X: Any) -> Array:
        return relative_residuals(self.classifier_, self._features(self._validated(X)))

    def _raw_scores(self, X: Array) -> Array:
        """Minus residuals or logits of validated rows, without class weights."""
        z = self._features(X)
        if self.head_ is None:
            return -relative_residuals(self.classifier_, z)
        return np.asarray(z @ self.head_.weight.detach().cpu().numpy().T + self.head_.bias.detach().cpu().numpy())

    def _novelty(self, X: Array) -> Array:
        scores = self._raw_scores(X)
        return np.asarray(-scores.max(axis=1) if self.head_ is None else 1 - softmax(scores, axis=1).max(axis=1))

    def _checked_plan(self, num_classes: int, samples: int) -> Plan:
        plan = self._plan(num_classes, samples, self._seed())
        check_components(self.n_components, plan.dim, "the number of dimensions (dim)")
        whole("n_iter_no_change", self.n_iter_no_change)
        if number("validation_fraction", self.validation_fraction, zero=True) >= 1:
            raise ValueError(f"validation_fraction must be below 1, got {self.validation_fraction!r}")
        return plan

    def _sample_weight(self, X: Array, fit_params: dict[str, Any]) -> Array:
        unknown = sorted(set(fit_params) - {"sample_weight"})
        if unknown:
            raise TypeError(f"fit() got an unexpected argument {unknown[0]!r}")
        given = fit_params.get("sample_weight")
        if given is not None and not weighs_samples(self.objective):
            raise ValueError(
                f"sample_weight is not defined for objective={self.objective!r}: a coding rate belongs to a set of "
                "points and has no term per sample; use class_weight, objective='ce' or NearestSubspaceClassifier"
            )
        return np.asarray(_check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True))

    def _weigh(self, logs: Array) -> None:
        # the loss of cross-entropy has these weights already
        self.class_log_weights_ = np.zeros_like(logs) if weighs_samples(self.objective) else logs
        self._drawn = logs

    def _subspaces_of(self, X: Array, labels: Array) -> NearestSubspace:
        subspaces = NearestSubspace(len(self.classes_), self.n_components)
        return subspaces.fit(torch.as_tensor(self._features(X)), torch.as_tensor(labels))

    def _calibrate(self, scores: Array, labels: Array, novelty: Array) -> None:
        self.temperature_ = fit_temperature(scores, labels)
        self.holdout_novelty_ = novelty


def held_out(labels: Array, fraction: float, plan: Plan) -> Array:
    """Which rows are held out: the fraction, each class by its share. At least two samples of a class stay.

    Fewer than one for each class would say nothing: then none are held out.
    """
    count = round(fraction * len(labels))
    if count < plan.num_classes:
        return np.zeros(len(labels), dtype=bool)
    return np.asarray(stratified(torch.as_tensor(labels), count, plan.num_classes, seed=plan.seed, keep=2).numpy())


def weighs_samples(objective: str) -> bool:
    """Whether an objective takes sample weights. An unknown objective is refused later, with the other arguments."""
    return objective in OBJECTIVES and OBJECTIVES[objective].weighs_samples
