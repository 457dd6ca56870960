"""From scores to probabilities: one temperature, fitted on samples that were not trained on."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

Array = np.ndarray[Any, Any]

START = 0.1
"""The temperature before anything is known."""
_LOG_RANGE = (np.log(1e-3), np.log(1e2))
RECENT = 1000
"""Scores that ``partial_fit`` keeps. Each was computed before its label was learned."""


def fit_temperature(scores: Array, labels: Array, weights: Array | None = None) -> float:
    """argmin_T of the negative log-likelihood of softmax(scores / T).

    Targets are smoothed as in Platt's scaling, by one sample that belongs to all classes equally. Without it, and with
    no mistake on the hold-out, the optimum would be T = 0: more certainty than a finite hold-out can support.
    """
    if not len(labels):
        return START
    n = len(scores)
    weights = np.ones(n) if weights is None else weights
    total = weights.sum()
    if not total > 0:
        return START
    smooth = 1.0 / (total + 1.0)

    def loss(log_temperature: float) -> float:
        log_p = log_softmax(scores / np.exp(log_temperature), axis=1)
        per_sample = (1 - smooth) * log_p[np.arange(n), labels] + smooth * log_p.mean(axis=1)
        return float(-(weights @ per_sample) / total)

    found = minimize_scalar(loss, bounds=_LOG_RANGE, method="bounded", options={"xatol": 1e-10})
    return float(np.exp(found.x))


def holdout_by_content(X: Array, fraction: float) -> Array:
    """Which rows are held out, by a hash of their numbers.

    So a sample that is given twice is on one side, and neither the order of the samples nor a seed matters: a weight of
    2 has the same effect as giving the sample twice.
    """
    hashes = np.fromiter((zlib.crc32(row.tobytes()) for row in np.ascontiguousarray(X)), np.uint64, len(X))
    return np.asarray(hashes < fraction * 2**32)
