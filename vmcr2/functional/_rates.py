"""The coding rate and the rate reduction of Eq. 1."""

from __future__ import annotations

import math
from typing import NamedTuple, get_args

from torch import Tensor

from ._classes import Classes
from ._inputs import check_count, check_features, check_positive, read_classes
from ._linalg import Guard, full_precision, working_dtype
from ._logdets import Backend, compression, expansion
from ._notebook import terms_table


class RateTerms(NamedTuple):
    """R, R_c and ΔR = R − R_c of Eq. 1, in nats."""

    expansion: Tensor
    compression: Tensor
    delta: Tensor

    def _repr_html_(self) -> str:
        return terms_table(
            [
                ("R", "expansion: of all features together", self.expansion),
                ("R<sub>c</sub>", "compression: within classes", self.compression),
                ("ΔR", "R − R<sub>c</sub>, in nats", self.delta),
            ]
        )


@full_precision
def coding_rate(
    z: Tensor, *, eps_sq: float = 0.5, backend: Backend = "auto", validate: bool = True, fault: Tensor | None = None
) -> Tensor:
    """R(Z) = ½ log det(I + d/(m ε²) ZᵀZ): nats to code the rows of z to precision ε (Eq. 1 of the paper).

    Args:
        z: features (m, d), rows of unit length for the paper's scale (not enforced here); |z| ≤ 1e15, in float64 1e150.
            In float16 its gradient is float16 too, which ends at 65504: with a very small ε² pass ``z.float()``.
        eps_sq: ε², the squared precision (never ε), between 1e-12 and 1e12.
        backend: "gram" factors m×m, "covariance" and "loop" d×d, "auto" the smaller; all give one value.
        validate: check the values and raise ``ValueError``; without it nothing waits for the device.
        fault: a bool scalar on z's device. Where an error cannot be raised, because values are not checked, it is set.

    The gradient is the closed form (d/(m ε²)) Z (I + …)⁻¹. "loop" differentiates the textbook formula; use it for
    second derivatives.

    >>> import torch
    >>> z = torch.eye(4)
    >>> round(coding_rate(z).item(), 4)  # ½ · 4 · log(1 + 1/0.5)
    2.1972
    """
    guard = Guard(validate, fault)
    check_positive(eps_sq, "eps_sq")
    _check_backend(backend)
    check_features(z, guard)
    return expansion(z.to(working_dtype(z)), eps_sq, backend, guard)


@full_precision
def rate_reduction(
    z: Tensor,
    labels: Tensor,
    num_classes: int | None = None,
    *,
    eps_sq: float = 0.5,
    backend: Backend = "auto",
    max_class_size: int | None = None,
    validate: bool = True,
    fault: Tensor | None = None,
) -> RateTerms:
    """ΔR = R − R_c with R_c = Σ_j γ_j/2 · log det(I + d/(n_j ε²) Zᵀ Diag(Π_j) Z), γ_j = n_j/m (Eq. 1 of the paper).

    Any class balance; a class without samples adds exactly 0.

    Args:
        z: features (m, d).
        labels: integers (m,), or memberships (m, k) whose rows sum to one, through which gradients flow too.
        num_classes: k; by default the largest label plus one, or the memberships' columns.
        eps_sq: ε², the squared precision (never ε), between 1e-12 and 1e12.
        backend: "gram" factors n_j×n_j per class, "covariance" d×d, "auto" the smaller class by class,
            "loop" is the textbook class loop of ``torch.logdet``.
        max_class_size: the most samples of a class where shapes are fixed (compiling, capturing, or ``validate=False``
            on a GPU); by default eight standard deviations above an even share. A larger class sets ``fault``.
        validate: check the values and raise ``ValueError``.
        fault: as in :func:`coding_rate`.

    >>> import torch
    >>> z = torch.eye(4)
    >>> terms = rate_reduction(z, torch.tensor([0, 0, 1, 1]))
    >>> [round(t.item(), 4) for t in terms]
    [2.1972, 1.6094, 0.5878]
    """
    guard = Guard(validate, fault)
    check_positive(eps_sq, "eps_sq")
    _check_backend(backend)
    check_features(z, guard)
    classes = read_classes(labels, z, num_classes, guard, max_class_size)
    return rates_of(z.to(working_dtype(z)), classes, eps_sq, backend, guard)


def rates_of(z: Tensor, classes: Classes, eps_sq: float, backend: Backend, guard: Guard) -> RateTerms:
    """The terms of checked features and classes."""
    R = expansion(z, eps_sq, backend, guard)
    R_c = compression(z, classes, eps_sq, backend, guard)
    return RateTerms(R, R_c, R - R_c)


def maximal_rate_reduction(dim: int, num_classes: int, *, eps_sq: float = 0.5) -> float:
    """The largest ΔR of balanced classes: d/2 · [log(1 + 1/ε²) − log(1 + k/ε²)/k].

    Orthogonal class subspaces of d/k dimensions with equal spectra attain it, if d/k is an integer.

    >>> round(maximal_rate_reduction(500, 100), 2)
    261.39
    """
    check_count(dim, "dim")
    check_count(num_classes, "num_classes")
    check_positive(eps_sq, "eps_sq")
    return dim / 2 * (math.log1p(1 / eps_sq) - math.log1p(num_classes / eps_sq) / num_classes)


def _check_backend(backend: str) -> None:
    if backend not in get_args(Backend):
        raise ValueError(f"backend must be one of {', '.join(get_args(Backend))}; got {backend!r}")
