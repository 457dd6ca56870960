"""A network trained by rate reduction, and the nearest subspace on its features."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..classifiers import NearestSubspace
from ._base import progress
from ._calibration import Array, fit_temperature, stratified_holdout
from ._labels import encode, log_weights, need_pairs, need_two_classes
from ._partial import PartialFit
from ._scores import SubspaceScores, relative_residuals
from ._training import Head, Settings, Trainer, accuracy_of, seeded


class RateReductionClassifier(SubspaceScores, PartialFit):
    """Features on mutually orthogonal class subspaces, learned by a network, and the nearest of them for every point.

    Args:
        objective: "vmcr2" (variational, the default), "mcr2" (exact) or "ce" (cross-entropy, as a yardstick; it
            predicts by its linear head).
        n_components: dimensions of every class's subspace; ⌊dim/k⌋ by default.
        dim: the number of features d; by default 13 per class up to 128, at least 5 per class.
        hidden: widths of the default network's layers (Linear, BatchNorm, ReLU).
        network: another network: a ``torch.nn.Module`` (copied, not changed) or a function (in_features, dim) -> one.
        epochs: passes over the data; by default about 300 steps, at most 200 epochs (100 for mcr2 and ce), at least 30.
        batch_size: the largest batch; small data is one batch.
        lr: learning rate at the start of the cosine; by default 0.3 (vmcr2), 0.03 (mcr2), 1.0 (ce).
        weight_decay: by default 2e-3 (vmcr2) or 5e-4.
        eps_sq: ε² of the coding rates.
        weight: how strictly V-MCR²'s dictionary must fit, see :class:`vmcr2.VMCR2Loss`.
        batch_expansion: β of V-MCR².
        atoms_per_class: of V-MCR²'s dictionary; by default 2·dim/k, within 2 and 12.
        early_stopping: stop where the hold-out's accuracy has not risen for ``n_iter_no_change`` epochs, and go back to
            the best.
        validation_fraction: what is held out of every class: for the temperature, ``reject`` and early stopping. With 0
            they use the training samples, on which the classifier is too sure of itself.
        n_iter_no_change: patience of early stopping, in epochs.
        standardize: bring every column to mean 0 and variance 1. False is better for pixels and other columns of one
            kind, given on a scale of about 1.
        class_weight: None, "balanced" or a dict: rate reductions draw samples by it and shift the decision by
            T·log w_j; cross-entropy weighs its terms.
        random_state: seed or ``RandomState``; torch's own random numbers are left as they were.
        verbose: 1 shows a progress bar.
        device: where to train, "cpu" or "cuda".

    ``fit`` takes ``sample_weight`` for cross-entropy only: a coding rate is of a set of points, and its estimate from
    batches has no term per sample to weigh.

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
        self.objective = objective
        self.n_components = n_components
        self.dim = dim
        self.hidden = hidden
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.eps_sq = eps_sq
        self.weight = weight
        self.batch_expansion = batch_expansion
        self.atoms_per_class = atoms_per_class
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.standardize = standardize
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any, **fit_params: Any) -> RateReductionClassifier:
        """Train the network and learn the subspaces of its features; forgets earlier ones.

        ``sample_weight`` is the only further argument, and for ``objective="ce"`` alone.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, order="C")
        weights = self._sample_weight(X, fit_params)
        self.classes_, labels = encode(y)
        need_two_classes(type(self).__name__, self.classes_)
        need_pairs(type(self).__name__, self.classes_, labels)
        settings = self._checked_settings(len(X))
        self._class_weights(y)
        rng = self._random()
        held = stratified_holdout(labels, self.validation_fraction, rng)
        if not held.any():
            held, kept = np.ones_like(held), np.ones_like(held)
        else:
            kept = ~held
        trainer = self._new_trainer(X[kept], settings, rng)
        self._trainer = None
        self._fitted_trainer = trainer
        self._train(trainer, (X[kept], labels[kept], weights[kept]), (X[held], labels[held]), rng)
        self._keep(trainer)
        self.head_ = self._head_of(trainer)
        self.classifier_ = self._subspaces_of(X[kept], labels[kept])
        self._calibrate(self._raw_scores(X[held]), labels[held], self._novelty(X[held]))
        return self

    def _scores(self, X: Any) -> Array:
        if self.head_ is None:
            return super()._scores(X)
        return self._raw_scores(self._validated(X))

    def novelty_score(self, X: Any) -> Array:
        """How foreign every point is, (n,), in [0, 1].

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
        logits: Array = z @ self.head_.weight.detach().cpu().numpy().T + self.head_.bias.detach().cpu().numpy()
        return logits

    def _novelty(self, X: Array) -> Array:
        scores = self._raw_scores(X)
        novelty: Array = -scores.max(axis=1) if self.head_ is None else 1 - softmax(scores, axis=1).max(axis=1)
        return novelty

    def _checked_settings(self, samples: int) -> Settings:
        settings = self._settings(len(self.classes_), self.dim, samples)
        if self.n_components is not None and not 1 <= self.n_components <= settings.dim:
            raise ValueError(
                f"n_components must lie between 1 and {settings.dim}, the number of dimensions (dim), "
                f"got {self.n_components}"
            )
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction must lie in [0, 1), got {self.validation_fraction}")
        return settings

    def _sample_weight(self, X: Array, fit_params: dict[str, Any]) -> Array:
        unknown = sorted(set(fit_params) - {"sample_weight"})
        if unknown:
            raise TypeError(f"fit() got an unexpected argument {unknown[0]!r}")
        given = fit_params.get("sample_weight")
        if given is not None and self.objective != "ce":
            raise ValueError(
                f"sample_weight is not defined for objective={self.objective!r}: a coding rate is of a set of points "
                "and has no term per sample; use class_weight, objective='ce' or NearestSubspaceClassifier"
            )
        weights: Array = _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)
        return weights

    def _class_weights(self, y: Array, *, partial: bool = False) -> None:
        logs = log_weights(self.class_weight, self.classes_, y, partial=partial)
        # cross-entropy has its weights in the loss already
        self.class_log_weights_ = np.zeros_like(logs) if self.objective == "ce" else logs
        self._drawn = logs

    def _train(
        self, trainer: Trainer, data: tuple[Array, Array, Array], held: tuple[Array, Array], rng: np.random.RandomState
    ) -> None:
        settings = trainer.settings
        x, labels = self._inputs(data[0], settings, trainer.featurizer), torch.as_tensor(data[1]).to(settings.device)
        by_class = np.exp(self._drawn - self._drawn.max())[data[1]]
        draw = weights = None
        if settings.objective == "ce":
            weights = torch.as_tensor(data[2] * by_class, dtype=torch.float32, device=settings.device)
        elif np.ptp(self._drawn) > 0:
            draw = by_class / by_class.sum()
        with seeded(rng, settings.device), progress(self.verbose, settings.epochs) as tick:
            stop = self._stopping(trainer, x, labels, held) if self.early_stopping else None

            def after_epoch(epoch: int) -> bool:
                tick(f"{settings.objective}, loss {trainer.loss_curve[-1]:.3f}" if trainer.loss_curve else "training")
                return stop is not None and stop(epoch)

            trainer.run(x, labels, rng, draw=draw, weights=weights, after_epoch=after_epoch)
            if stop is not None:
                trainer.featurizer.load_state_dict(self._best[0])
                trainer.objective.load_state_dict(self._best[1])
                del self._best

    def _stopping(
        self, trainer: Trainer, x: torch.Tensor, labels: torch.Tensor, held: tuple[Array, Array]
    ) -> Callable[[int], bool]:
        """Looks at the hold-out every few epochs, keeps the best state, and says when to stop."""
        held_x = self._inputs(held[0], trainer.settings, trainer.featurizer)
        held_labels = torch.as_tensor(held[1]).to(held_x.device)
        every = max(1, min(5, self.n_iter_no_change // 3))
        self.validation_scores_: list[float] = []
        best_at, best = 0, -1.0

        def stop(epoch: int) -> bool:
            nonlocal best_at, best
            if (epoch + 1) % every and epoch + 1 < trainer.settings.epochs:
                return False
            score = accuracy_of(trainer, (x, labels), (held_x, held_labels), self.n_components)
            self.validation_scores_.append(score)
            if score > best:
                best, best_at = score, epoch
                self._best = copy.deepcopy((trainer.featurizer.state_dict(), trainer.objective.state_dict()))
            return epoch - best_at >= self.n_iter_no_change

        return stop

    def _subspaces_of(self, X: Array, labels: Array) -> NearestSubspace:
        subspaces = NearestSubspace(len(self.classes_), self.n_components)
        return subspaces.fit(torch.as_tensor(self._features(X)), torch.as_tensor(labels))

    def _head_of(self, trainer: Trainer) -> torch.nn.Linear | None:
        return copy.deepcopy(trainer.objective.linear).double() if isinstance(trainer.objective, Head) else None

    def _calibrate(self, scores: Array, labels: Array, novelty: Array) -> None:
        self.temperature_ = fit_temperature(scores, labels)
        self.holdout_novelty_ = novelty
