"""Classifiers on top of the features."""

from ._nearest_subspace import NearestSubspace

__all__ = ["NearestSubspace"]
