"""What estimators calibrate on: rows that are held out, and the latest scores of ``partial_fit``."""

from __future__ import annotations

import zlib

import numpy as np

from ..inference import Array

RECENT = 1000
"""Scores that ``partial_fit`` keeps. Each was computed before its label was learned."""


def holdout_by_content(X: Array, fraction: float) -> Array:
    """Which rows are held out, by a hash of their numbers.

    So a sample that is given twice is on one side, and neither the order of the samples nor a seed matters: a weight of
    2 has the same effect as giving the sample twice.
    """
    hashes = np.fromiter((zlib.crc32(row.tobytes()) for row in np.ascontiguousarray(X)), np.uint64, len(X))
    return np.asarray(hashes < fraction * 2**32)
