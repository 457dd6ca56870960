"""One judgement of features, for losses, runs and estimators: collapsed, stalled, or neither."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ._inputs import check_count, check_positive

# Of what the classes beside the largest need at least: one direction with a tenth of their share of the samples.
LEAST_SHARE = 0.1
# Of the largest ΔR. Cross-entropy's features reach 0.2 and more, those of an untrained network 0.01.
LEAST_REDUCTION = 0.1


def diagnose(
    expansion: float,
    compression: float | None,
    *,
    num_classes: int,
    dim: int,
    eps_sq: float,
    proportions: Sequence[float] | None = None,
) -> str | None:
    """What is wrong with unit features of these rates, in one sentence, or None.

    "Collapsed": all features point almost the same way. With c = d/ε², features on one line have R = ½ log(1 + c). They
    count as collapsed while R is not above that of two directions with the shares 1 − s and s, where s is a tenth of
    the share of all classes but the largest: ½ [log(1 + c(1 − s)) + log(1 + cs)]. "Stalled": ΔR is below a tenth of its
    maximum. One class cannot be separated from another, so it is always well.

    Args:
        expansion: R of a whole set, or of a batch.
        compression: R_c of the same features. None: do not judge ΔR. That of a batch says little: with few samples per
            class it is larger than that of the set.
        num_classes: k.
        dim: d.
        eps_sq: ε².
        proportions: γ_j, the classes' shares of the samples; all equal if not given.

    >>> diagnose(2.8, 2.79, num_classes=10, dim=128, eps_sq=0.5)[:9]
    'collapsed'
    >>> diagnose(20.0, 18.0, num_classes=10, dim=128, eps_sq=0.5)[:7]
    'stalled'
    >>> diagnose(70.0, 20.0, num_classes=10, dim=128, eps_sq=0.5)
    """
    shares = _shares(num_classes, proportions)
    check_count(dim, "dim")
    check_positive(eps_sq, "eps_sq")
    if len(shares) < 2:
        return None
    if expansion <= collapsed_expansion(shares, dim, eps_sq):
        return (
            f"collapsed: all features point almost the same way (R is {expansion:.2f}; "
            f"it is {math.log1p(dim / eps_sq) / 2:.2f} if they are parallel)"
        )
    if compression is None:
        return None
    best = _best_reduction(shares, dim, eps_sq)
    if expansion - compression < LEAST_REDUCTION * best:
        return f"stalled: ΔR is {expansion - compression:.2f}, below a tenth of its maximum {best:.2f}"
    return None


def collapsed_expansion(shares: Sequence[float], dim: int, eps_sq: float) -> float:
    """The largest R of features that count as collapsed."""
    other = LEAST_SHARE * (1.0 - max(shares))
    c = dim / eps_sq
    return (math.log1p(c * (1.0 - other)) + math.log1p(c * other)) / 2


def _best_reduction(shares: Sequence[float], dim: int, eps_sq: float) -> float:
    """ΔR of orthogonal subspaces, evenly filled, whose dimensions are in proportion to the classes.

    For balanced classes it is the maximum, :func:`maximal_rate_reduction`; for others it is close to it, and R is
    maximal.
    """
    whole = math.log1p(1 / eps_sq)
    return dim / 2 * sum(share * (whole - share * math.log1p(1 / (share * eps_sq))) for share in shares)


def _shares(num_classes: int, proportions: Sequence[float] | None) -> list[float]:
    """Of the classes that have samples; they sum to 1."""
    check_count(num_classes, "num_classes")
    if proportions is None:
        return [1.0 / num_classes] * num_classes
    if len(proportions) != num_classes or not sum(proportions) > 0 or min(proportions) < 0:
        raise ValueError(f"proportions must be {num_classes} numbers (num_classes) of at least 0, not all 0")
    total = float(sum(proportions))
    return [float(share) / total for share in proportions if share > 0]
