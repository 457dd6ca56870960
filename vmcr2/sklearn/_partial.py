"""``partial_fit`` of the trained classifier: one pass at a time, with subspaces that follow the changing features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import validate_data

from ..classifiers import NearestSubspace
from ..inference import Array, Calibration
from ..objectives import WHOLE_WEIGHT
from ._arguments import whole
from ._holdout import RECENT
from ._labels import encode, log_weights, partial_classes
from ._readout import Readout, head_of
from ._scores import with_moments
from ._training import Trainer, portable
from ._undo import undone_on_failure

_KEPT = 0.9
"""The part of a class's second moment that stays when a new batch of it comes: the features change meanwhile."""


class PartialFit(Readout):
    """Training on batches as they come."""

    _trainer: Trainer | None = None
    _fitted_trainer: Trainer | None = None

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        trainers = {name: state[name] for name in ("_trainer", "_fitted_trainer") if state.get(name) is not None}
        return state | {name: portable(trainer) for name, trainer in trainers.items()}

    @undone_on_failure("_trainer", "_fitted_trainer", "classifier_")
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """One pass over these samples, at the constant learning rate ``lr``.

        The first call needs ``classes``, all labels that may come, and its samples set the standardisation. The
        subspaces follow the latest batches. The temperature comes from the latest samples, scored before they were
        learned.
        After ``fit`` the training continues from the fitted network.
        """
        first = not hasattr(self, "classes_")
        known = partial_classes(type(self).__name__, classes, None if first else self.classes_)
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", reset=first)
        if len(X) < 2:
            raise ValueError("partial_fit needs at least two samples at a time: BatchNorm needs a spread")
        _, labels = encode(y, known)
        sizes = np.bincount(labels, minlength=len(known))
        if first:
            self._class_logs = log_weights(self.class_weight, known, known, partial=True)
            self._class_sizes = np.zeros(len(known))
        trainer = self._trainer or self._begin(X, sizes)
        if not first:
            self._calibrate_on_recent(X, labels)
        self._one_pass(trainer, X, labels)
        self._class_sizes = self._class_sizes + sizes
        if first:
            self.readout_ = self._plain_readout()
            self._set_calibration(Calibration(), np.empty(0))
        self.classes_ = known
        return self

    def _begin(self, X: Array, sizes: Array) -> Trainer:
        """A trainer, and nothing to calibrate on yet. After ``fit`` it has the fitted network, head and dictionary."""
        k, fitted = len(sizes), self._fitted_trainer
        # more rows will come: the first ones do not say how many a class will have
        expected = np.full(k, max(WHOLE_WEIGHT, -(-whole("batch_size", self.batch_size) // k)))
        plan = self._checked_plan(expected, fitted.plan.objective.name if fitted else None)
        self._recent: tuple[Array, Array, Array] = (np.empty((0, k)), np.empty(0, dtype=np.int64), np.empty(0))
        self._trainer = fitted or self._new_trainer(X, plan, torch.arange(k))
        self._trainer.objective.make_room(plan.optim.batch_size)
        self._trainer.plan = replace(self._trainer.plan, optim=plan.optim)  # the arguments may have changed since
        return self._trainer

    def _one_pass(self, trainer: Trainer, X: Array, labels: Array) -> None:
        data = self._samples(trainer, X, labels, self._class_logs)
        trainer.epoch(data)
        self._keep(trainer)
        self.head_ = head_of(trainer)
        self._n_features_out = trainer.plan.dim
        self._follow(X, labels, trainer.plan.num_classes)

    def _follow(self, X: Array, labels: Array, k: int) -> None:
        """Add the batch's features to the second moments, in which older batches fade."""
        subspaces = getattr(self, "classifier_", None) or NearestSubspace(k, self.n_components)
        if len(subspaces.sizes):
            present = torch.as_tensor(np.bincount(labels, minlength=k) > 0)
            keep = torch.where(present, _KEPT, 1.0).to(subspaces.scatter.dtype)
            subspaces.scatter *= keep[:, None, None]
            subspaces.sizes *= keep
        elif subspaces.fitted:
            subspaces = with_moments(subspaces, torch.full((k,), float(len(X))))  # as if of one batch
        self.classifier_ = subspaces.partial_fit(torch.as_tensor(self._features(X)), torch.as_tensor(labels))

    def _calibrate_on_recent(self, X: Array, labels: Array) -> None:
        fresh = (self._scores_by(self.readout_, self._features(X)), labels, self._novelty(X))
        scores, known, novelty = (np.concatenate(pair)[-RECENT:] for pair in zip(self._recent, fresh, strict=True))
        self._recent = (scores, known, novelty)
        self._set_calibration(self._calibration(self.readout_, scores, known), novelty)
