"""The V-MCR² objective of Eq. 7, term by term, with closed-form gradients in the features, Γ and A."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from . import _dictionary_rate as rate
from . import _mismatch
from ._inputs import check_positive
from ._linalg import Guard, attach_gradient, full_precision, wants_gradient, working_dtype
from ._logdets import expansion
from ._problem import Problem, Scalar, build_problem, check_atoms, check_dictionary, read_problem


class VariationalTerms(NamedTuple):
    """Every part of Eq. 7, and the batch's own rate beside it; natural logs."""

    variational_expansion: Tensor
    """R^v: the rate of what the dictionary says. Not bounded by the maximum of R."""
    variational_compression: Tensor
    """R^v_c."""
    mismatch: Tensor
    """M, on the paper's scale (it grows with m²)."""
    objective: Tensor
    """R^v − R^v_c − (μ/2m) M, to be maximised."""
    expansion: Tensor
    """R(z): the exact rate of the batch. Not a part of Eq. 7."""


class VariationalGradients(NamedTuple):
    """Gradients of the objective of Eq. 7."""

    features: Tensor
    dictionary: Tensor
    codes: Tensor


@full_precision
def variational_expansion(
    dictionary: Tensor,
    codes: Tensor,
    proportions: Tensor,
    *,
    eps_sq: float = 0.5,
    validate: bool = True,
    fault: Tensor | None = None,
) -> Tensor:
    """R^v(Γ, A) = ½ log det(I + (d/ε²) Γ Diag(Σ_j γ_j Â_j) Γᵀ), Eq. 7 with the stored codes Â = A/n_j.

    Args:
        dictionary: Γ, (d, q), unit columns.
        codes: Â, (q, k), non-negative: the class's spectrum per sample.
        proportions: γ, (k,): each class's share of the batch, 0 for an absent one.
        eps_sq: ε², the squared precision.
        validate: look at the values and raise ``ValueError``.
        fault: as in :func:`coding_rate`.

    >>> identity = torch.eye(4)
    >>> codes = torch.tensor([[0.5, 0.0], [0.5, 0.0], [0.0, 0.5], [0.0, 0.5]])
    >>> round(variational_expansion(identity, codes, torch.tensor([0.5, 0.5])).item(), 4)  # R of two orthogonal planes
    2.1972
    """
    check_positive(eps_sq, "eps_sq")
    guard = Guard(validate, fault)
    check_dictionary(dictionary, codes, guard)
    check_proportions(proportions, codes)
    dtype = working_dtype(dictionary, codes)
    dictionary, codes, proportions = (tensor.to(dtype) for tensor in (dictionary, codes, proportions))
    return _expansion(dictionary, codes, proportions, len(dictionary) / eps_sq, guard)


@full_precision
def variational_compression(codes: Tensor, proportions: Tensor, dim: int, *, eps_sq: float = 0.5) -> Tensor:
    """R^v_c(A) = Σ_j γ_j/2 Σ_l log(1 + (d/ε²) Â_lj), Eq. 7 with the stored codes Â = A/n_j; ``dim`` is d.

    >>> codes = torch.tensor([[0.5, 0.0], [0.5, 0.0], [0.0, 0.5], [0.0, 0.5]])
    >>> round(variational_compression(codes, torch.tensor([0.5, 0.5]), 4).item(), 4)
    1.6094
    """
    check_positive(eps_sq, "eps_sq")
    check_proportions(proportions, codes)
    dtype = working_dtype(codes)
    return rate.compression_value(codes.to(dtype), proportions.to(dtype), dim / eps_sq)


@full_precision
def mismatch(
    z: Tensor,
    labels: Tensor,
    dictionary: Tensor,
    codes: Tensor,
    *,
    method: Literal["expansion", "dense", "precise"] = "expansion",
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
        method: "expansion" (the appendix's, fast; cancels near M = 0), "dense" (d×d per class: the oracle) or "precise"
            (the expansion in float64, without a gradient: the one for logs; not negative unless debiased).
        debias: leave the pairs of a sample with itself out, which removes the minibatch's bias in ‖Ĉ_j‖²
            (not "dense").
        max_class_size: as in :func:`rate_reduction`.
        validate: look at the values and raise ``ValueError``.
        fault: as in :func:`coding_rate`.

    >>> z, labels = torch.eye(2), torch.tensor([0, 1])
    >>> mismatch(z, labels, torch.eye(2), torch.eye(2), method="precise").item()
    0.0
    """
    if method not in ("expansion", "dense", "precise"):
        raise ValueError(f"method must be 'expansion', 'dense' or 'precise', got {method!r}")
    if debias and method == "dense":
        raise ValueError("debias=True goes with method='expansion' or 'precise'")
    guard = Guard(validate, fault)
    z, dictionary, codes = check_atoms(z, dictionary, codes, guard)
    if method == "precise":
        z, dictionary, codes = (tensor.detach().double() for tensor in (z, dictionary, codes))
    problem = build_problem(
        z,
        labels,
        codes.shape[1],
        eps_sq=1.0,
        weight=1.0,
        debias=debias,
        max_class_size=max_class_size,
        guard=guard,
    )
    if method == "dense":
        return len(z) ** 2 * _mismatch.dense(z, problem.classes, dictionary, codes)
    value = len(z) ** 2 * problem.mismatch(dictionary, codes)
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

    Differentiable in z, Γ and the codes (closed forms). Arguments as in :func:`mismatch`; give ``mu`` or ``weight``.

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


@full_precision
def variational_gradients(
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
) -> VariationalGradients:
    """∂/∂z, ∂/∂Γ and ∂/∂Â of the objective of Eq. 7, in closed form. Arguments as in :func:`variational_terms`.

    With w = weight, c = d/ε², S = I + cΓDiag(s)Γᵀ and the symbols of docs/theory.md:
    ∂/∂z_i = −(4w/m)(Ĉ_j − ΓDiag(Â_j)Γᵀ)z_i, ∂/∂Γ = cS⁻¹ΓDiag(s) − w·∂D/∂Γ,
    ∂/∂Â_j = γ_j[(c/2)(diag ΓᵀS⁻¹Γ − 1/(1 + cÂ_j)) − 2w(G₂Â_j − v_j)].

    >>> z, labels = torch.eye(2), torch.tensor([0, 1])
    >>> bool(variational_gradients(z, labels, torch.eye(2), torch.eye(2), mu=1.0).features.abs().max() < 1e-6)
    True
    """
    guard = Guard(validate, fault)
    with torch.no_grad():
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
        _, by_features = _mismatch.expanded(problem.z, problem.classes, dictionary, codes, problem.pairs)
        own, data = problem.own_terms(dictionary, codes), problem.data_terms(dictionary, codes)
        by_dictionary, by_codes = problem.block_gradients(codes, own, data)
        by_codes = by_codes * problem.classes.proportions
        return VariationalGradients(-problem.weight * by_features, by_dictionary, by_codes)


def check_proportions(proportions: Tensor, codes: Tensor) -> None:
    """γ (k,) beside Â (q, k)."""
    if codes.ndim != 2 or proportions.shape != codes.shape[1:]:
        raise ValueError(
            f"codes must be (q, k) and proportions (k,); got {tuple(codes.shape)} and {tuple(proportions.shape)}"
        )


def terms_of(
    problem: Problem,
    dictionary: Tensor,
    codes: Tensor,
    *,
    matched: Tensor | None = None,
    focus: float = 0.0,
    with_expansion: bool = True,
) -> VariationalTerms:
    """Eq. 7 and R(z) of a checked problem; R(z) can be left out, as a zero, where it is not wanted.

    With multipliers the objective penalises the mismatch of ``matched`` codes, not that of the codes themselves; with a
    focus its attraction is the logarithm's. M is always the codes' own.
    """
    m = len(problem.z)
    proportions = problem.classes.proportions
    D = problem.mismatch(dictionary, codes)
    R_v = _expansion(dictionary, codes, proportions, problem.c, problem.guard)
    R_vc = rate.compression_value(codes, proportions, problem.c)
    R = expansion(problem.z, problem.eps_sq, "auto", problem.guard) if with_expansion else torch.zeros_like(R_v)
    penalised = D
    if matched is not None or focus:
        penalised = problem.mismatch(dictionary, codes if matched is None else matched, focus)
    return VariationalTerms(R_v, R_vc, m**2 * D, R_v - R_vc - problem.weight * penalised, R)


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
