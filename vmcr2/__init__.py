"""Maximal coding rate reduction, exact and variational: features on orthogonal class subspaces."""

from ._version import __version__
from .classifiers import NearestSubspace
from .functional import RateTerms, VariationalTerms, coding_rate, rate_reduction, variational_logdet
from .losses import MCR2Loss, VMCR2Loss

__all__ = [
    "MCR2Loss",
    "NearestSubspace",
    "RateTerms",
    "VMCR2Loss",
    "VariationalTerms",
    "__version__",
    "coding_rate",
    "rate_reduction",
    "variational_logdet",
]
