"""``partial_fit`` of the trained classifier: one pass at a time, with subspaces that follow the moving features."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import validate_data

from ..classifiers import NearestSubspace
from ._base import RateReductionBase
from ._calibration import RECENT, START, Array
from ._labels import encode, need_two_classes
from ._training import Trainer, seeded

_KEPT = 0.9
"""What is kept of a class's second moment when a new batch of it comes: the features move meanwhile."""


class PartialFit(RateReductionBase):
    """The second way to train: batches as they come."""

    _trainer: Trainer | None = None
    _fitted_trainer: Trainer | None = None

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """One pass over these samples, at the constant learning rate ``lr``.

        The first call needs ``classes``, all labels that may come, and its samples set the standardisation. The
        subspaces follow the latest batches. The temperature is of the latest samples, scored before they were learned.
        After ``fit`` the network goes on from what was learned.
        """
        first = not hasattr(self, "classes_")
        if first and classes is None:
            raise ValueError("classes must be given to the first call of partial_fit: all labels that may come")
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", reset=first)
        if len(X) < 2:
            raise ValueError("partial_fit needs at least two samples at a time: BatchNorm needs a spread")
        if first:
            self.classes_ = np.unique(classes)
            need_two_classes(type(self).__name__, self.classes_)
            self._class_weights(self.classes_, partial=True)
            self.temperature_, self.holdout_novelty_ = START, np.empty(0)
        _, labels = encode(y, self.classes_)
        trainer = self._trainer or self._begin(X)
        if not first:
            self._calibrate_on_recent(X, labels)
        self._one_pass(trainer, X, labels)
        return self

    def _begin(self, X: Array) -> Trainer:
        """A trainer and an empty classifier; after ``fit`` with its network, head and dictionary."""
        settings = self._checked_settings(len(X))
        self._rng = self._random()
        k = len(self.classes_)
        self._recent: tuple[Array, Array, Array] = (np.empty((0, k)), np.empty(0, dtype=np.int64), np.empty(0))
        self._trainer = self._fitted_trainer or self._new_trainer(X, settings, self._rng)
        for group in self._trainer.optimizer.param_groups:
            group["lr"] = settings.lr
        return self._trainer

    def _one_pass(self, trainer: Trainer, X: Array, labels: Array) -> None:
        device = trainer.settings.device
        x, targets = self._inputs(X, trainer.settings, trainer.featurizer), torch.as_tensor(labels).to(device)
        weights = torch.as_tensor(np.exp(self._drawn)[labels], dtype=torch.float32, device=device)
        by_class = np.exp(self._drawn - self._drawn.max())[labels]
        draw = by_class / by_class.sum() if np.ptp(self._drawn) > 0 and trainer.settings.objective != "ce" else None
        with seeded(self._rng, device):
            trainer.epoch(x, targets, self._rng, draw, weights)
        trainer.loss_curve.append(trainer.loss(x, targets))
        self._keep(trainer)
        self.head_ = self._head_of(trainer)
        self._follow(X, labels)

    def _follow(self, X: Array, labels: Array) -> None:
        """Add the batch's features to the second moments, which forget."""
        old = getattr(self, "classifier_", None)
        new = NearestSubspace(len(self.classes_), self.n_components)
        if old is not None and len(old.sizes):
            present = torch.as_tensor(np.bincount(labels, minlength=len(self.classes_)) > 0)
            keep = torch.where(present, _KEPT, 1.0).to(old.scatter.dtype)
            new.scatter, new.sizes = old.scatter * keep[:, None, None], old.sizes * keep
        elif old is not None:
            # after fit: its subspaces and their energies, as if of one batch
            new.scatter = (old.bases * old.energies[:, None] * len(X)) @ old.bases.mT
            new.sizes = torch.full((len(self.classes_),), float(len(X)), dtype=old.bases.dtype)
        self.classifier_ = new.partial_fit(torch.as_tensor(self._features(X)), torch.as_tensor(labels))

    def _calibrate_on_recent(self, X: Array, labels: Array) -> None:
        fresh = (self._raw_scores(X), labels, self._novelty(X))
        scores, known, novelty = (np.concatenate(pair)[-RECENT:] for pair in zip(self._recent, fresh, strict=True))
        self._recent = (scores, known, novelty)
        self._calibrate(scores, known, novelty)
