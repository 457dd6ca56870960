"""Lines 5–10 of Algorithm 1 in pieces: step sizes, both gradient steps from the old point, both projections.

:func:`variational_step` takes the pieces one after the other. The losses take the same pieces, some of them at the same
time on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._classes import Classes, safe_reciprocal
from ._dictionary_rate import DictionaryRate, expansion_with_gradients
from ._inputs import check_not_negative, check_positive
from ._linalg import Guard, full_precision, products_as_asked, tracing
from ._mismatch import AtomTerms, Scalar, atom_terms
from ._own_atoms import find_own_atoms
from ._own_steps import OwnPrepared, move_by_own_atoms, prepare_own_step
from ._problem import read_problem
from ._projections import CodesRule, check_codes_rule, codes_projection, unit_columns
from ._step_sizes import codes_rate, dictionary_rate


@full_precision
def variational_step(
    z: Tensor,
    labels: Tensor,
    dictionary: Tensor,
    codes: Tensor,
    *,
    eps_sq: float = 0.5,
    mu: Scalar | None = None,
    weight: Scalar | None = None,
    nu_dictionary: Scalar = 5.0,
    nu_codes: Scalar = 5.0,
    codes_rule: CodesRule = "free",
    codes_trace: float = 1.0,
    cap_codes_step: bool = True,
    max_class_size: int | None = None,
    validate: bool = True,
    fault: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of Algorithm 1, lines 5–10: (Γ, Â) after both gradient steps from the old point, and both projections.

    Args:
        z: features (m, d), taken as constants.
        labels: integers (m,) or memberships (m, k).
        dictionary: Γ, (d, q), unit columns.
        codes: Â = A/n_j, (q, k), non-negative. The codes of a class that is not in the batch do not change.
        eps_sq: ε², the squared precision.
        mu: the paper's μ; or
        weight: μm/2, the weight of M/m².
        nu_dictionary: ν_Γ; the step is ν_Γ/L_Γ, and none where L_Γ = 0 (all codes zero).
        nu_codes: ν_A; the step is ν_A/L_j.
        codes_rule: "free" (non-negative, as in the paper) or "flat" (always equal on the class's own atoms).
        codes_trace: the sum of a class's flat codes; unit features have 1.
        cap_codes_step: keep ν_A·λ_max(G₂)/‖G₂‖_F below 2. Above 2, small or coherent dictionaries diverge.
        max_class_size: as in :func:`rate_reduction`.
        validate: check the values and raise ``ValueError``.
        fault: as in :func:`coding_rate`.

    If the new values are not all finite, the step is not taken.

    >>> z, labels = torch.eye(2), torch.tensor([0, 1])
    >>> dictionary, codes = variational_step(z, labels, torch.eye(2), torch.eye(2), weight=1e6)  # already optimal
    >>> bool(torch.allclose(dictionary, torch.eye(2), atol=1e-3) and torch.allclose(codes, torch.eye(2), atol=1e-3))
    True
    """
    guard = Guard(validate, fault)
    check_codes_rule(codes_rule)
    check_positive(codes_trace, "codes_trace")
    for name, nu in (("nu_dictionary", nu_dictionary), ("nu_codes", nu_codes)):
        if not isinstance(nu, Tensor):
            check_not_negative(nu, name)
    with torch.no_grad():
        problem, dictionary, codes = read_problem(
            z,
            labels,
            dictionary,
            codes,
            eps_sq=eps_sq,
            mu=mu,
            weight=weight,
            max_class_size=max_class_size,
            guard=guard,
        )
        old, classes = Atoms(dictionary, codes), problem.classes
        project = codes_projection(codes_rule, codes_trace)
        own = find_own_atoms(dictionary, codes, classes)
        constants: dict[str, Any] = {
            "c": problem.c,
            "weight": problem.weight,
            "nu_codes": nu_codes,
            "cap_codes_step": cap_codes_step,
        }
        prepared: Prepared | OwnPrepared
        if own is not None:
            prepared = prepare_own_step(dictionary, codes, own, classes, guard=guard, **constants)
            gradient, new_codes = move_by_own_atoms(problem, dictionary, codes, prepared, project)
        else:
            rates = expansion_with_gradients(dictionary, codes, classes.proportions, problem.c, guard)
            terms = atom_terms(dictionary, codes, classes.proportions, len(z))
            prepared = prepare_step(codes, classes, rates, terms, **constants)
            with products_as_asked():
                coordinates = problem.z @ dictionary
                new_codes = move_codes(prepared, classes, codes, coordinates.square(), project)
                gradient = dictionary_gradient(prepared, problem.z, coordinates)
        rate = dictionary_rate(problem, prepared.largest, nu_dictionary)
        return keep_finite(old, Atoms(move_dictionary(dictionary, gradient, rate), new_codes), guard)


class Atoms(NamedTuple):
    """What Algorithm 1 updates together with the network: Γ (d, q) and Â (q, k)."""

    dictionary: Tensor
    codes: Tensor


class Prepared(NamedTuple):
    """The part of a step that needs no features. The features add one product to each of its two results."""

    codes: Tensor
    """Âᵀ after its step without the features' part, (k, q)."""
    summing: Tensor
    """2w·ν_A/(L_A n_j), (k,): the factor of Σ_{i∈j} (γ_lᵀz_i)², which is the features' part of it."""
    dictionary: Tensor
    """∂/∂Γ without the features' part, (d, q)."""
    spreading: Tensor
    """(4w/m)Âᵀ of each sample's class, (m, q): Zᵀ(ZΓ ∘ these rows) is the features' part of it."""
    largest: Tensor
    """max_l |Â_lj|, (k,)."""


def prepare_step(
    codes: Tensor,
    classes: Classes,
    rates: DictionaryRate,
    terms: AtomTerms,
    *,
    c: float,
    weight: Scalar,
    nu_codes: Scalar,
    cap_codes_step: bool,
) -> Prepared:
    """What follows from Γ, Â and the labels: from R^v's gradients and the dictionary's own part of M."""
    step = codes_rate(classes, terms.frobenius, terms.largest_row, weight, nu_codes, cap_codes_step)
    own = c / 2 * (rates.leverage.unsqueeze(1) - 1.0 / (1.0 + c * codes)) - 2.0 * weight * terms.product
    return Prepared(
        codes=torch.addcmul(codes, own, step).T.contiguous(),
        summing=2.0 * weight * step * safe_reciprocal(classes.sizes),
        dictionary=rates.dictionary_gradient - 4.0 * weight * terms.gradient,
        spreading=classes.spread((4.0 / classes.num_samples * weight * codes.T).contiguous()),
        largest=codes.abs().amax(0),
    )


def move_codes(
    prepared: Prepared, classes: Classes, codes: Tensor, squares: Tensor, project: Callable[[Tensor], Tensor]
) -> Tensor:
    """Â after its step and its projection, from (ZΓ)^⊙2 (m, q); a class without samples keeps its codes."""
    moved = classes.add_sums(prepared.codes, prepared.summing, squares)
    return torch.where(classes.proportions > 0, project(moved.T), codes)


def dictionary_gradient(prepared: Prepared, z: Tensor, coordinates: Tensor) -> Tensor:
    """∂/∂Γ, (d, q), from ``coordinates`` = ZΓ (m, q), which it overwrites."""
    return torch.addmm(prepared.dictionary, z.T, coordinates.mul_(prepared.spreading))


def move_dictionary(dictionary: Tensor, gradient: Tensor, rate: Tensor) -> Tensor:
    """Γ after its step and its projection. Near unit columns the squares are in range, or the step is not finite."""
    return unit_columns(torch.addcmul(dictionary, gradient, rate))


def keep_finite(old: Atoms, new: Atoms, guard: Guard) -> Atoms:
    """The new Γ and Â, or the old ones if a value is not finite."""
    sound = torch.isfinite(new.dictionary.sum() + new.codes.sum())
    guard.report(
        ~sound, lambda: "a step of Algorithm 1 overflows: the values of z, dictionary or codes are too large; scale z"
    )
    if new.codes.device.type == "cpu" and not tracing():  # nothing to wait for: no copies
        return new if bool(sound) else old
    return Atoms(*(torch.where(sound, after, before) for after, before in zip(new, old, strict=True)))
