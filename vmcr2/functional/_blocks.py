"""V-MCR² where a class owns its s atoms and uses no others: a step touches the classes of its batch only.

R^v is of all classes. It needs them only through T = Σ_j π_j Γ_j Diag(Â_j) Γ_jᵀ, a d×d sum that is kept, and changed by
the difference of the classes that move. Everything else, R^v_c and M, is a sum over classes, of which a batch has some.
All tensors here are of the batch's P classes; docs/theory.md has the equations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ._classes import HardClasses, safe_reciprocal
from ._dictionary_rate import expansion_of_sum, own_compression_value
from ._linalg import attach_gradient, products_as_asked, wants_gradient
from ._logdets import expansion
from ._mismatch import Scalar, expanded_by_own_atoms
from ._own_steps import features_part, own_codes_gradient, own_pulls
from ._problem import Problem
from ._step_sizes import codes_rate
from ._steps import Atoms, move_dictionary
from ._variational import VariationalTerms, put_together, with_rate


class Blocks(NamedTuple):
    """The atoms and codes of some classes. An atom is a row: its entries lie next to each other in memory."""

    atoms: Tensor
    """Γ_jᵀ, (P, s, d)."""
    codes: Tensor
    """Â_j, (P, s)."""

    def sum(self, shares: Tensor) -> Tensor:
        """Σ_j π_j Γ_j Diag(Â_j) Γ_jᵀ, (d, d)."""
        rows = self.atoms.flatten(0, 1)
        weights = (self.codes * shares.unsqueeze(1)).flatten().unsqueeze(1)
        return (rows * weights).T @ rows


class BlockPrepared(NamedTuple):
    """The part of a step that needs no features."""

    blocks: Blocks
    moved: Tensor
    """Codes after their step without the features' part, (P, s)."""
    summing: Tensor
    """2w·ν_A/(L_A n_j), (P,): the factor of Σ_{i∈j} (γ_lᵀz_i)², which is the features' part of it."""
    gradient: Tensor
    """∂/∂Γ_j without the features' part, as rows, (P, s, d)."""
    largest: Tensor
    """max_l |Â_lj|, (P,)."""
    weight: Tensor
    """w, a scalar."""

    def tensors(self) -> list[Tensor]:
        """All that it holds."""
        return [*self.blocks, self.moved, self.summing, self.gradient, self.largest, self.weight]


def prepare_block_step(
    blocks: Blocks,
    classes: HardClasses,
    inverse: Tensor,
    *,
    c: float,
    weight: Scalar,
    nu_codes: Scalar,
    cap_codes_step: bool,
) -> BlockPrepared:
    """What follows from Γ, Â and the labels; ``inverse`` is (I + cT)⁻¹, (d, d).

    The penalty in the codes of these classes has the Hessian 2w·Diag(γ_j G₂_j), and L_A is its constant: the Frobenius
    norm of the blocks G₂_j = (Γ_jᵀΓ_j)^⊙2 together, as in the appendix.
    """
    atoms, codes = blocks
    rows = (atoms.flatten(0, 1) @ inverse.to(atoms.dtype)).view_as(atoms)
    leverage = (rows * atoms).sum(2)
    overlaps = atoms @ atoms.mT
    present = (classes.proportions > 0).to(codes.dtype)
    squares = overlaps.square() * present[:, None, None]
    step = codes_rate(
        classes, torch.linalg.vector_norm(squares), squares.sum(2).amax(), weight, nu_codes, cap_codes_step
    )
    gradient = own_codes_gradient(blocks, squares, leverage, c, weight)
    rate = rows.mul_((c * codes * classes.proportions.unsqueeze(1)).unsqueeze(2))
    return BlockPrepared(
        blocks=blocks,
        moved=torch.addcmul(codes, gradient, step.unsqueeze(1)),
        summing=2.0 * weight * step * safe_reciprocal(classes.sizes),
        gradient=rate.sub_(own_pulls(blocks, overlaps, classes) * (4.0 * weight)),
        largest=codes.abs().amax(1),
        weight=torch.as_tensor(weight, dtype=codes.dtype, device=codes.device),
    )


def move_blocks(problem: Problem, prepared: BlockPrepared, rate: Tensor, project: Callable[[Tensor], Tensor]) -> Atoms:
    """Γ_j as rows (P, s, d) and Â_j (P, s) after both steps and both projections; left-over places keep theirs."""
    blocks = prepared.blocks
    with products_as_asked():
        projected, pulls = features_part(problem, blocks)
    codes = project(torch.addcmul(prepared.moved, projected, prepared.summing.unsqueeze(1)))
    codes = torch.where((problem.classes.proportions > 0).unsqueeze(1), codes, blocks.codes)
    gradient = pulls.mul_(4.0 * prepared.weight).add_(prepared.gradient)
    # the projection is onto unit columns: here the columns are rows
    moved = move_dictionary(blocks.atoms.flatten(0, 1).T, gradient.flatten(0, 1).T, rate).T
    return Atoms(moved.reshape(blocks.atoms.shape), codes)


def block_terms(problem: Problem, blocks: Blocks, total: Tensor, *, with_expansion: bool = True) -> VariationalTerms:
    """Eq. 7 and R(z): R^v of all classes, from ``total``, and R^v_c and M of the batch; differentiable in z."""
    with torch.no_grad():
        D, gradient = expanded_by_own_atoms(problem.classes, problem.pairs, blocks, problem.focus)
    if wants_gradient(problem.z):
        D = attach_gradient(D, problem.z, gradient)
    R = expansion(problem.z, problem.eps_sq, "auto", problem.guard) if with_expansion else D.new_zeros(())
    return _terms(problem, blocks, total, D, R)


@torch.no_grad()
def block_terms_with_gradient(
    problem: Problem, blocks: Blocks, total: Tensor, batch_expansion: Tensor, *, with_expansion: bool = True
) -> tuple[VariationalTerms, Tensor]:
    """The same as constants, and the gradient in z of (μ/2m)M − β·R(z), (m, d)."""
    D, by_mismatch = expanded_by_own_atoms(problem.classes, problem.pairs, blocks, problem.focus)
    R, gradient = with_rate(problem, by_mismatch, batch_expansion if with_expansion else None)
    return _terms(problem, blocks, total, D, R), gradient


def _terms(problem: Problem, blocks: Blocks, total: Tensor, D: Tensor, R: Tensor) -> VariationalTerms:
    R_v = expansion_of_sum(total, problem.c, problem.guard)
    R_vc = own_compression_value(blocks.codes, problem.classes.proportions, problem.c)
    return put_together(problem, R_v, R_vc, D, R)
