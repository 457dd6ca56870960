"""A training step of the variational loss: Γ and Â move, and the features get their gradient, without the loss's value.

The value costs a second factorisation of R^v and a second ΓᵀΓ, and only a log reads it. On a GPU, parts that do not
wait for each other run on different CUDA streams (lanes), each with a flag of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .._shared import Aside
from ..functional import (
    Atoms,
    BlockPrepared,
    Blocks,
    Classes,
    Guard,
    OwnPrepared,
    Prepared,
    Problem,
    Scalar,
    atom_terms,
    dictionary_gradient,
    dictionary_rate,
    expansion_gradient,
    expansion_gradients,
    find_own_atoms,
    keep_finite,
    move_blocks,
    move_by_own_atoms,
    move_codes,
    move_dictionary,
    prepare_own_step,
    prepare_step,
    products_as_asked,
    pull_weights,
    residuals_by_own_atoms,
    same_class_pairs,
)
from ._branch_guard import BranchGuard


class Ahead(NamedTuple):
    """What a step needs from the labels, Γ and Â only: it can be computed before the features are there."""

    classes: Classes
    prepared: Prepared | OwnPrepared | BlockPrepared

    def tensors(self) -> list[Tensor]:
        """All that it holds where shapes are fixed, which is where it is kept from step to step."""
        if isinstance(self.prepared, OwnPrepared):
            raise TypeError("the shapes of a class's own atoms depend on values")
        own = self.prepared.tensors() if isinstance(self.prepared, BlockPrepared) else self.prepared
        return [*self.classes.tensors(), *own]


def prepare(
    atoms: Atoms, classes: Classes, *, c: float, weight: Scalar, nu_codes: Scalar, cap_codes_step: bool, guard: Guard
) -> Prepared | OwnPrepared:
    """The part of a step that needs no features; the dictionary's part of M runs beside R^v's factorisation."""
    dictionary, codes = atoms
    own = find_own_atoms(dictionary, codes, classes)
    if own is not None:
        return prepare_own_step(
            *(dictionary, codes, own, classes),
            c=c,
            weight=weight,
            nu_codes=nu_codes,
            cap_codes_step=cap_codes_step,
            guard=guard,
        )
    with Aside(dictionary, lane=3) as side:
        terms = atom_terms(dictionary, codes, classes.proportions, classes.num_samples)
    rates = expansion_gradients(dictionary, codes, classes.proportions, c, guard)
    side.join()
    return prepare_step(
        codes, classes, rates, terms, c=c, weight=weight, nu_codes=nu_codes, cap_codes_step=cap_codes_step
    )


def take_step(
    problem: Problem,
    atoms: Atoms,
    prepared: Prepared | OwnPrepared | BlockPrepared,
    rate: Callable[[], Tensor],
    project: Callable[[Tensor], Tensor],
) -> Atoms:
    """The rest of the step, on a checked problem; callers :func:`keep_finite` its result.

    ``rate`` is called as late as possible: it may wait for a lane.
    """
    z, classes = problem.z, problem.classes
    dictionary, codes = atoms
    if isinstance(prepared, BlockPrepared):
        return move_blocks(problem, prepared, rate(), project)  # at once: it reads the pairs, which are of that lane
    if isinstance(prepared, OwnPrepared):
        gradient, new_codes = move_by_own_atoms(problem, dictionary, codes, prepared, project)
        return Atoms(move_dictionary(dictionary, gradient, rate()), new_codes)
    with products_as_asked():
        coordinates = z @ dictionary
        squares = coordinates.square()
        with Aside(z, lane=2) as moving:
            new_codes = move_codes(prepared, classes, codes, squares, project)
        gradient = dictionary_gradient(prepared, z, coordinates)
    new_dictionary = move_dictionary(dictionary, gradient, rate())
    moving.join()
    return Atoms(new_dictionary, new_codes)


def step_and_gradient(
    z: Tensor,
    atoms: Atoms,
    ahead: Ahead,
    *,
    eps_sq: float,
    weight: Scalar,
    nu_dictionary: Scalar,
    project: Callable[[Tensor], Tensor],
    batch_expansion: Tensor | None,
    debias: bool,
    focus: float = 0.0,
    guard: Guard,
) -> tuple[Atoms, Tensor]:
    """Algorithm 1's step, and ∂((μ/2m)M − β·R)/∂z at the new (Γ, Â). β = None leaves R out."""
    classes, prepared = ahead
    in_blocks = isinstance(prepared, BlockPrepared)
    scale = 4.0 / len(z) * weight
    first = BranchGuard(z, guard)
    with Aside(z) as measuring:
        problem = Problem(z, classes, same_class_pairs(z, classes, debias, first.guard), eps_sq, weight, guard)
        rate = dictionary_rate(problem, prepared.largest, nu_dictionary)
    with Aside(z) as multiplying:
        # beside the step on a GPU; a CPU waits for what the step leaves
        by_pairs = problem.pairs.moment_products * scale if z.is_cuda and not in_blocks else None
    second = BranchGuard(z, guard)
    with Aside(z, lane=1) as expanding:
        by_rate = None if batch_expansion is None else expansion_gradient(z, eps_sq, second.guard)

    def joined_rate() -> Tensor:
        measuring.join()
        return rate

    new = take_step(problem, atoms, prepared, joined_rate, project)
    third = BranchGuard(z, guard)
    with Aside(z, lane=2) as checking:
        kept = keep_finite(atoms, new, third.guard)
    if not z.is_cuda:  # a GPU does not wait: if the step is not finite, the gradient is not either, and is noticed
        new = kept
    own = Blocks(*new) if in_blocks else find_own_atoms(*new, classes)
    if own is not None:
        with products_as_asked():
            gradient = residuals_by_own_atoms(problem.pairs, own, focus)[0].mul_(scale)
    else:
        with Aside(z, lane=3) as spreading:  # beside the first product
            rows = classes.spread((new.codes.T * -scale).contiguous())
        with products_as_asked():
            model = z @ new.dictionary
            spreading.join()
            multiplying.join()
            if by_pairs is None:
                by_pairs = problem.pairs.moment_products * scale
            pulls = model * rows if focus else model.mul_(rows)
            if focus:  # the factor −scale is in the energy and in the largest code, and so not in the share
                pulls *= pull_weights((pulls * model).sum(1), rows.amin(1), focus).unsqueeze(1)
            gradient = torch.addmm(by_pairs, pulls, new.dictionary.T)
    expanding.join()
    checking.join()
    if by_rate is not None and batch_expansion is not None:
        gradient.addcmul_(by_rate, batch_expansion, value=-1.0)
    for branch in (first, second, third):
        branch.report()
    return kept, gradient
