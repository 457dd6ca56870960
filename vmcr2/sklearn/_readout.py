"""Which scores a trained classifier predicts by, the head's or the subspaces', and how they become probabilities."""

from __future__ import annotations

import copy

import numpy as np
import torch
from scipy.special import softmax

from ..classifiers import NearestSubspace
from ..inference import HEAD, SUBSPACE, Array, Calibration, fit_calibration, log_shares
from ._base import AUTO, RateReductionBase
from ._scores import relative_residuals
from ._training import Trainer

READOUTS = (HEAD, SUBSPACE)


class Readout(RateReductionBase):
    """Scores of features, and their calibration on samples that were not trained on."""

    head_: torch.nn.Linear | None
    classifier_: NearestSubspace
    readout_: str
    _class_logs: Array
    """log w_j of ``class_weight``."""
    _class_sizes: Array

    def _scores_by(self, readout: str, z: Array) -> Array:
        """Logits, or minus residuals, without class weights and sizes."""
        if readout == SUBSPACE or self.head_ is None:
            return -relative_residuals(self.classifier_, z)
        return np.asarray(z @ self.head_.weight.detach().cpu().numpy().T + self.head_.bias.detach().cpu().numpy())

    def _novelty(self, X: Array) -> Array:
        z = self._features(X)
        if self.objective_ == "ce" and self.readout_ == HEAD:
            return np.asarray(1 - softmax(self._scores_by(HEAD, z), axis=1).max(axis=1))
        return np.asarray(-self._scores_by(SUBSPACE, z).max(axis=1))

    def _choose_readout(self, X: Array, labels: Array, *, seen: bool) -> None:
        """Calibrate on a hold-out, or on training samples (``seen``). If asked to, choose between the two read-outs."""
        z = self._features(X)
        self.readout_ = self._plain_readout()
        found = self._calibration(self.readout_, self._scores_by(self.readout_, z), labels)
        # what was trained on cannot tell them apart, and class weights make their likelihoods different things
        if self.readout == AUTO and "+" in self.objective_ and not seen and np.ptp(self._class_logs) == 0:
            other = self._calibration(SUBSPACE, self._scores_by(SUBSPACE, z), labels)
            if other.loss < found.loss:
                self.readout_, found = SUBSPACE, other
        self._set_calibration(found, self._novelty(X))

    def _plain_readout(self) -> str:
        """The one that was asked for; without a choice the head, where there is one."""
        if self.readout != AUTO:
            return str(self.readout)
        return SUBSPACE if self.head_ is None else HEAD

    def _calibration(self, readout: str, scores: Array, labels: Array) -> Calibration:
        if readout == HEAD:  # it was trained for the weighted classes, and knows their sizes
            return fit_calibration(scores, labels, np.exp(self._class_logs)[labels])
        return fit_calibration(scores, labels, log_prior=log_shares(self._class_sizes))

    def _set_calibration(self, found: Calibration, novelty: Array) -> None:
        self.temperature_, self.prior_share_ = found.temperature, found.prior_share
        self.holdout_novelty_ = novelty
        by_head = self.readout_ == HEAD
        shift = np.zeros_like(self._class_logs) if by_head else self._class_logs
        self.class_log_shift_ = shift + found.prior_share * log_shares(self._class_sizes)


def head_of(trainer: Trainer) -> torch.nn.Linear | None:
    """A copy of the objective's own head, in float64, on the CPU."""
    return copy.deepcopy(trainer.objective.head).double().cpu() if trainer.objective.head is not None else None
