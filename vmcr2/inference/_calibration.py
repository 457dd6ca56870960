"""From scores to probabilities: a temperature and how far class sizes enter, from samples that were not trained on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

START = 0.1
"""The temperature before anything is known."""
_LOG_RANGE = (np.log(1e-7), np.log(1e2))
_PRIOR_SHARES = (0.25, 0.5, 0.75, 1.0)


class Calibration(NamedTuple):
    """softmax(scores / temperature + prior_share · log of the classes' shares) are the probabilities."""

    temperature: float = START
    prior_share: float = 0.0
    loss: float = np.inf
    """The mean negative log-likelihood that they leave on the hold-out."""


def fit_calibration(
    scores: Array, labels: Array, weights: Array | None = None, log_prior: Array | None = None
) -> Calibration:
    """The T that minimises the hold-out's negative log-likelihood, and with a ``log_prior`` also β in [0, 1].

    β says how far class sizes enter: residuals contain them more or less. The likelihood, or always β = 1, would give
    up rare classes (docs/sklearn.md), so β follows the mistakes on the hold-out. A hold-out is small: β stays 0 unless
    it avoids more mistakes than one standard error.

    Targets are smoothed as in Platt's scaling, by one sample that belongs to all classes equally. Without it, and with
    no mistake on the hold-out, the optimum would be T = 0: more certainty than a finite hold-out can support.
    """
    from scipy.optimize import minimize_scalar  # here: loading a run to predict with need not wait for it
    from scipy.special import log_softmax

    weights = np.ones(len(scores)) if weights is None else weights
    total = weights.sum()
    if not total > 0:
        return Calibration()
    smooth = 1.0 / (total + 1.0)

    def loss(log_temperature: float, shift: Any) -> float:
        log_p = log_softmax(scores / np.exp(log_temperature) + shift, axis=1)
        per_sample = (1 - smooth) * log_p[np.arange(len(labels)), labels] + smooth * log_p.mean(axis=1)
        return float(-(weights @ per_sample) / total)

    def best(share: float) -> Calibration:
        shift = share * log_prior if share and log_prior is not None else 0.0
        found = minimize_scalar(loss, args=(shift,), bounds=_LOG_RANGE, method="bounded", options={"xatol": 1e-10})
        return Calibration(float(np.exp(found.x)), share, float(found.fun))

    plain = best(0.0)
    if log_prior is None or np.ptp(log_prior) == 0:
        return plain

    def mistakes(found: Calibration) -> Array:
        predicted = (scores / found.temperature + found.prior_share * log_prior).argmax(axis=1)
        return np.asarray(predicted != labels, dtype=float)

    other = min(map(best, _PRIOR_SHARES), key=lambda found: (weights @ mistakes(found), found.loss))
    avoided = mistakes(plain) - mistakes(other)
    return other if weights @ avoided > np.sqrt(weights @ np.square(avoided)) else plain


def log_shares(sizes: Array) -> Array:
    """log of the classes' shares of the samples; a class without any counts as half a sample."""
    sizes = np.maximum(sizes, 0.5)
    return np.asarray(np.log(sizes / sizes.sum()))
