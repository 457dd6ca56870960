"""The V-MCR² objective of Eq. 7, term by term, with closed-form gradients in the features, Γ and A."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from . import _dictionary_rate as rate
from ._inputs import report_overflow
from ._linalg import Guard, attach_gradient, full_precision, wants_gradient
from ._logdets import expansion, expansion_with_gradient
from ._mismatch import Scalar
from ._notebook import terms_table
from ._own_atoms import OwnAtoms
from ._problem import Problem, build_problem, check_atoms, read_problem


class VariationalTerms(NamedTuple):
    """Every part of Eq. 7, and the exact rate of the batch; natural logs."""

    variational_expansion: Tensor
    """R^v: the rate of the features that Γ and Â describe. It can be larger than the maximum of R."""
    variational_compression: Tensor
    """R^v_c."""
    mismatch: Tensor
    """M, on the paper's scale (it grows with m²)."""
    objective: Tensor
    """R^v − R^v_c − (μ/2m) M, to be maximised."""
    expansion: Tensor
    """R(z): the exact rate of the batch, which is not a part of Eq. 7."""

    def _repr_html_(self) -> str:
        return terms_table(
            [
                ("R<sup>v</sup>", "of the dictionary and the codes", self.variational_expansion),
                ("R<sup>v</sup><sub>c</sub>", "its counterpart within classes", self.variational_compression),
                ("M", "mismatch of the features and the dictionary", self.mismatch),
                ("R<sup>v</sup> − R<sup>v</sup><sub>c</sub> − (μ/2m) M", "objective, Eq. 7", self.objective),
                ("R", "expansion of the batch itself, in nats", self.expansion),
            ]
        )


@full_precision
def mismatch(
    z: Tensor,
    labels: Tensor,
    dictionary: Tensor,
    codes: Tensor,
    *,
    method: Literal["expansion", "precise"] = "expansion",
    debias: bool = False,
    max_class_size: int | None = None,
    validate: bool = True,
    fault: Tensor | None = None,
) -> Tensor:
    """M = Σ_j 1/γ_j ‖Zᵀ Diag(Π_j) Z − Γ Diag(A_j) Γᵀ‖_F² of Eq. 7, with A_j = n_j · codes_j.

    Args:
        z: features (m, d).
        labels: integers (m,) or memberships (m, k).
        dictionary: Γ, (d, q).
        codes: Â = A/n_j, (q, k).
        method: "expansion" (the appendix's; fast, but its parts cancel near M = 0) or "precise" (the same in float64,
            without a gradient; for logs. Not negative unless debiased).
        debias: leave out the pairs of a sample with itself, which removes the minibatch's bias in ‖Ĉ_j‖².
        max_class_size: as in :func:`rate_reduction`.
        validate: check the values and raise ``ValueError``.
        fault: as in :func:`coding_rate`.

    >>> z, labels = torch.eye(2), torch.tensor([0, 1])
    >>> mismatch(z, labels, torch.eye(2), torch.eye(2), method="precise").item()
    0.0
    """
    if method not in ("expansion", "precise"):
        raise ValueError(f"method must be 'expansion' or 'precise', got {method!r}")
    guard = Guard(validate, fault)
    z, dictionary, codes = check_atoms(z, dictionary, codes, guard)
    if method == "precise":
        z, dictionary, codes = (tensor.detach().double() for tensor in (z, dictionary, codes))
    problem = build_problem(
        z, labels, codes.shape[1], eps_sq=1.0, weight=1.0, debias=debias, max_class_size=max_class_size, guard=guard
    )
    value = len(z) ** 2 * problem.mismatch(dictionary, codes)
    report_overflow(value, guard)
    return value.clamp_min(0.0) if method == "precise" and not debias else value


@full_precision
def variational_terms(
    z: Tensor,
    labels: Tensor,
    dictionary: Tensor,
    codes: Tensor,
    *,
    eps_sq: float = 0.5,
    mu: Scalar | None = None,
    weight: Scalar | None = None,
    debias: bool = False,
    max_class_size: int | None = None,
    validate: bool = True,
    fault: Tensor | None = None,
) -> VariationalTerms:
    """Eq. 7 with all its parts: R^v − R^v_c − (μ/2m) M, which is R^v − R^v_c − weight · M/m².

    R^v = ½ log det(I + c Γ Diag(Σ_j γ_j Â_j) Γᵀ) and R^v_c = Σ_j γ_j/2 Σ_l log(1 + c Â_lj); c = d/ε² and Â = A/n_j.
    Differentiable in z, Γ and the codes, in closed form (docs/theory.md). Arguments as in :func:`mismatch`; give ``mu``
    or ``weight``.

    >>> z, labels = torch.eye(2), torch.tensor([0, 1])
    >>> terms = variational_terms(z, labels, torch.eye(2), torch.eye(2), weight=20.0)
    >>> round(terms.objective.item(), 4), round(terms.mismatch.item(), 4)  # M = 0, so the objective is ΔR
    (0.2939, 0.0)
    """
    guard = Guard(validate, fault)
    problem, dictionary, codes = read_problem(
        z,
        labels,
        dictionary,
        codes,
        eps_sq=eps_sq,
        mu=mu,
        weight=weight,
        debias=debias,
        max_class_size=max_class_size,
        guard=guard,
    )
    return terms_of(problem, dictionary, codes)


def terms_of(problem: Problem, dictionary: Tensor, codes: Tensor, *, with_expansion: bool = True) -> VariationalTerms:
    """Eq. 7 and R(z) of a checked problem; without ``with_expansion`` R(z) is given as 0."""
    D = problem.mismatch(dictionary, codes)
    R = expansion(problem.z, problem.eps_sq, "auto", problem.guard) if with_expansion else D.new_zeros(())
    return _terms(problem, dictionary, codes, D, R)


@torch.no_grad()
def terms_with_gradient(
    problem: Problem, dictionary: Tensor, codes: Tensor, batch_expansion: Tensor, *, with_expansion: bool = True
) -> tuple[VariationalTerms, Tensor]:
    """:func:`terms_of` as constants, and the gradient in z of (μ/2m)M − β·R(z), (m, d)."""
    own = problem.own_atoms(dictionary, codes)
    D, by_mismatch = problem.mismatch_with_gradient(dictionary, codes, own)
    R, gradient = with_rate(problem, by_mismatch, batch_expansion if with_expansion else None)
    return _terms(problem, dictionary, codes, D, R, own), gradient


def with_rate(problem: Problem, by_mismatch: Tensor, batch_expansion: Tensor | None) -> tuple[Tensor, Tensor]:
    """R(z), and the gradient of (μ/2m)M − β·R(z) from that of D, (m, d). β = None leaves R out: it is given as 0."""
    gradient = problem.weight * by_mismatch
    if batch_expansion is None:
        return gradient.new_zeros(()), gradient
    R, by_rate = expansion_with_gradient(problem.z, problem.eps_sq, problem.guard)
    return R, gradient - batch_expansion * by_rate


def _terms(
    problem: Problem, dictionary: Tensor, codes: Tensor, D: Tensor, R: Tensor, own: OwnAtoms | None = None
) -> VariationalTerms:
    proportions = problem.classes.proportions
    R_v = _expansion(dictionary, codes, proportions, problem.c, problem.guard)
    if own is None:
        R_vc = rate.compression_value(codes, proportions, problem.c)
    else:
        R_vc = rate.own_compression_value(own.codes, proportions, problem.c)
    return put_together(problem, R_v, R_vc, D, R)


def put_together(problem: Problem, R_v: Tensor, R_vc: Tensor, D: Tensor, R: Tensor) -> VariationalTerms:
    """Eq. 7 from its parts; D = M/m²."""
    objective = R_v - R_vc - problem.weight * D
    report_overflow(objective, problem.guard)
    return VariationalTerms(R_v, R_vc, len(problem.z) ** 2 * D, objective, R)


def _expansion(dictionary: Tensor, codes: Tensor, proportions: Tensor, c: float, guard: Guard) -> Tensor:
    wants_dictionary, wants_codes = wants_gradient(dictionary), wants_gradient(codes)
    with torch.no_grad():
        if not (wants_dictionary or wants_codes):
            return rate.expansion_value(dictionary, codes, proportions, c, guard)
        rates = rate.expansion_with_gradients(dictionary, codes, proportions, c, guard)
    value = rates.value
    if wants_dictionary:
        value = attach_gradient(value, dictionary, rates.dictionary_gradient)
    if wants_codes:
        value = attach_gradient(value, codes, torch.outer(c / 2 * rates.leverage, proportions))
    return value
