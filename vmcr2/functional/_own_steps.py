"""Algorithm 1's step from each class's own atoms, on a CPU: the same step as in _steps.py, for less work.

The step on the code of a foreign atom, Â_lj = 0, is a positive factor times (d/2ε²)(λ_l − 1) − 2w(G₂Â_j)_l + 2w·v_lj
with λ_l the leverage, and v_lj = γ_lᵀĈ_jγ_l ≤ ‖Ĉ_j‖_F·‖γ_l‖². If (d/2ε²)(1 − λ_l) is larger than 2w·‖Ĉ_j‖_F·‖γ_l‖² for
every class j, the projection puts all foreign codes of atom l back to 0, and none is computed. Other atoms are *open*:
their codes are computed for all classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ._classes import Classes, safe_reciprocal
from ._dictionary_rate import expansion_with_gradients
from ._linalg import Guard
from ._mismatch import Scalar
from ._own_atoms import ClassAtoms, OwnAtoms, parts_of
from ._problem import Problem
from ._step_sizes import codes_rate

# Rows of ΓᵀΓ at a time: a strip stays in a CPU's cache.
_STRIP = 256

# Room for the rounding of the bound above.
_MARGIN = 1.01


class OwnPrepared(NamedTuple):
    """The part of a step that needs no features."""

    own: OwnAtoms
    moved: Tensor
    """Own codes after their step without the features' part, (k, w)."""
    step: Tensor
    """The codes' step size, (k,); 0 for a class without samples."""
    rate_gradient: Tensor
    """∂R^v/∂Γ, (d, q)."""
    pulls: Tensor
    """The rows of K ∘ γ_jÂ_jÂ_jᵀ times own atoms, (k, w, d): −4w times their sum is the dictionary's part of ∂/∂Γ."""
    leverage: Tensor
    """λ_l, (q,)."""
    largest: Tensor
    """max_l |Â_lj|, (k,)."""
    weight: Scalar
    c: float


def overlap_norms(dictionary: Tensor) -> tuple[Tensor, Tensor]:
    """‖G₂‖_F and max_l Σ_l' G₂_ll' of G₂ = (ΓᵀΓ)^⊙2, which is symmetric: only the half on and above its diagonal."""
    q = dictionary.shape[1]
    rows, total = dictionary.new_zeros(q), dictionary.new_zeros(())
    for start in range(0, q, _STRIP):
        end = min(q, start + _STRIP)
        strip = (dictionary[:, start:end].T @ dictionary[:, start:]).square_()
        inner, outer = strip[:, : end - start], strip[:, end - start :]
        rows[start:end] += strip.sum(1)
        rows[end:] += outer.sum(0)
        total += 2.0 * torch.linalg.vector_norm(strip).square() - torch.linalg.vector_norm(inner).square()
    return total.sqrt(), rows.amax()


def prepare_own_step(
    dictionary: Tensor,
    codes: Tensor,
    own: OwnAtoms,
    classes: Classes,
    *,
    c: float,
    weight: Scalar,
    nu_codes: Scalar,
    cap_codes_step: bool,
    guard: Guard,
) -> OwnPrepared:
    """What follows from Γ, Â and the labels."""
    rates = expansion_with_gradients(dictionary, codes, classes.proportions, c, guard)
    step = codes_rate(classes, *overlap_norms(dictionary), weight, nu_codes, cap_codes_step)
    overlaps = own.atoms @ own.atoms.mT
    gradient = own_codes_gradient(own, overlaps.square(), rates.leverage[own.which], c, weight)
    return OwnPrepared(
        own=own,
        moved=torch.addcmul(own.codes, gradient, step.unsqueeze(1)),
        step=step,
        rate_gradient=rates.dictionary_gradient,
        pulls=own_pulls(own, overlaps, classes),
        leverage=rates.leverage,
        largest=own.codes.abs().amax(1),
        weight=weight,
        c=c,
    )


def own_codes_gradient(own: ClassAtoms, squares: Tensor, leverage: Tensor, c: float, weight: Scalar) -> Tensor:
    """∂/∂Â_j without γ_j and without the features' part, (k, w); ``squares`` are a class's G₂, ``leverage`` is λ."""
    products = (squares @ own.codes.unsqueeze(2)).squeeze(2)
    return c / 2 * (leverage - 1.0 / (1.0 + c * own.codes)) - 2.0 * weight * products


def own_pulls(own: ClassAtoms, overlaps: Tensor, classes: Classes) -> Tensor:
    """The rows of K ∘ γ_jÂ_jÂ_jᵀ times own atoms, (k, w, d); ``overlaps`` are K of every class, overwritten."""
    weights = own.codes * classes.proportions.unsqueeze(1)
    return overlaps.mul_(own.codes.unsqueeze(1)).mul_(weights.unsqueeze(2)) @ own.atoms


def features_part(problem: Problem, own: ClassAtoms) -> tuple[Tensor, Tensor]:
    """Σ_{i∈j} (γ_lᵀz_i)², (k, w), and Z_jᵀ(Z_jΓ_j ∘ Â_j)/m as rows, (k, w, d): what the features add to a step."""
    projected, pulls = torch.zeros_like(own.codes), torch.zeros_like(own.atoms)
    importance = problem.classes.importance
    for part in parts_of(problem.pairs, own):
        projected.index_copy_(0, part.classes, part.coordinates.square().sum(1))
        weights = part.codes.unsqueeze(1) / len(problem.z)
        if importance is not None:
            weights = weights * importance[part.classes, None, None]
        pulls.index_copy_(0, part.classes, (part.coordinates * weights).mT @ part.members)
    return projected, pulls


def move_by_own_atoms(
    problem: Problem, dictionary: Tensor, codes: Tensor, prepared: OwnPrepared, project: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """∂/∂Γ, (d, q), and Â after its step and its projection; a class without samples keeps its codes."""
    classes, own = problem.classes, prepared.own
    projected, pulls = features_part(problem, own)
    pulls.sub_(prepared.pulls)
    q = dictionary.shape[1]
    summing = 2.0 * prepared.weight * prepared.step * safe_reciprocal(classes.sizes)
    moved = own.scatter(torch.addcmul(prepared.moved, projected, summing.unsqueeze(1)), q)
    for_all = open_atoms(problem, dictionary, prepared)
    if len(for_all):
        moved[for_all] = _open_codes(problem, dictionary, codes, prepared, for_all, summing)
    new_codes = project(moved)
    absent = (classes.proportions == 0).nonzero().squeeze(1)
    new_codes[:, absent] = codes[:, absent]
    return torch.add(prepared.rate_gradient, own.sum_rows(pulls, q).mul_(4.0 * prepared.weight).T), new_codes


def open_atoms(problem: Problem, dictionary: Tensor, prepared: OwnPrepared) -> Tensor:
    """The atoms whose codes of foreign classes may become positive in this step."""
    energy = problem.pairs.energy.amax().sqrt() * dictionary.square().sum(0)
    closed = prepared.c / 2 * (1.0 - prepared.leverage) >= _MARGIN * 2.0 * prepared.weight * energy
    return (~closed).nonzero().squeeze(1)


def _open_codes(
    problem: Problem, dictionary: Tensor, codes: Tensor, prepared: OwnPrepared, atoms: Tensor, summing: Tensor
) -> Tensor:
    """The codes of some atoms after their step, for all classes, (atoms, k)."""
    c, some, before = prepared.c, dictionary[:, atoms], codes[atoms]
    products = (some.T @ dictionary).square_() @ codes
    own = c / 2 * (prepared.leverage[atoms].unsqueeze(1) - 1.0 / (1.0 + c * before)) - 2.0 * prepared.weight * products
    projected = problem.classes.sum((problem.z @ some).square_()).T
    return before + prepared.step * own + summing * projected
