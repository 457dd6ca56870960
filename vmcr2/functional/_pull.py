"""What an objective does to the features, ∂loss/∂z, without its value: all that a training step needs.

The value costs a second factorisation of R^v and a second ΓᵀΓ, or log-dets, and only a log reads it. Branches that do
not wait for each other run side by side on a GPU; each has a flag of its own, joined at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .._shared import Aside
from . import _mismatch
from ._classes import Classes, SoftClasses
from ._linalg import Guard, products_as_asked
from ._logdets import carried_compression, compression, expansion_gradient, hard_compression
from ._pairs import same_class_pairs
from ._problem import Problem, Scalar
from ._steps import Atoms, Prepared, dictionary_rate, take_step


class Ahead(NamedTuple):
    """What a variational step needs of the labels, Γ and Â alone: it can be made before the features are there."""

    classes: Classes
    prepared: Prepared


def exact_pull(z: Tensor, classes: Classes, eps_sq: float, guard: Guard, memory: Tensor | None = None) -> Tensor:
    """∂(R_c − R)/∂z of checked rows no longer than 1; R_c with ``memory`` as in :func:`carried_compression`."""
    with Aside(z) as side:
        spreading = _Branch(z, guard)
        by_expansion = expansion_gradient(z, eps_sq, spreading.guard)
    if isinstance(classes, SoftClasses):
        by_compression = _soft_compression_gradient(z, classes, eps_sq, guard)
    elif memory is not None:
        by_compression = carried_compression(z, memory, classes, eps_sq, guard)[1]
    else:
        by_compression = hard_compression(z, classes, eps_sq, "auto", guard, with_gradient=True)[1]
    side.join()
    spreading.report()
    return by_compression - by_expansion


def variational_pull(
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
    focus: float,
    guard: Guard,
) -> tuple[Tensor, Atoms]:
    """Algorithm 1's step, then ∂((μ/2m)M − β·R)/∂z at the new (Γ, Â, U), and these; β None leaves R out."""
    classes, prepared = ahead
    scale = 4.0 / len(z) * weight
    first = _Branch(z, guard)
    with Aside(z) as measuring:
        problem = Problem(z, classes, same_class_pairs(z, classes, debias, first.guard), eps_sq, weight, guard)
        rate = dictionary_rate(problem, prepared, nu_dictionary)
    with Aside(z) as pulling:
        pull = problem.pairs.pull * scale
    second = _Branch(z, guard)
    with Aside(z, lane=1) as spreading:
        spread = None if batch_expansion is None else expansion_gradient(z, eps_sq, second.guard) * batch_expansion

    def joined_rate() -> Tensor:
        measuring.join()
        return rate

    atoms = take_step(problem, atoms, prepared, joined_rate, project)
    if focus:
        model = _mismatch.attraction(z, classes, atoms.dictionary, atoms.matched, focus) * -scale
    else:
        model = _mismatch.coordinates_of(z, classes, atoms.dictionary, atoms.matched.T * -scale)
    pulling.join()
    with products_as_asked():
        gradient = torch.addmm(pull, model, atoms.dictionary.T)
    spreading.join()
    first.report()
    second.report()
    return gradient if spread is None else gradient.sub_(spread), atoms


class _Branch:
    """A guard for work beside the main stream: two streams must not write one flag at the same time."""

    def __init__(self, like: Tensor, guard: Guard) -> None:
        self._outer = guard
        self._flag = torch.zeros((), dtype=torch.bool, device=like.device)
        self.guard = Guard(guard.validate, self._flag, guard.synchronises)

    def report(self) -> None:
        """After the join."""
        if self._outer.fault is not None:
            self._outer.fault.logical_or_(self._flag)


def _soft_compression_gradient(z: Tensor, classes: SoftClasses, eps_sq: float, guard: Guard) -> Tensor:
    with torch.enable_grad():
        leaf = z.detach().requires_grad_()
        value = compression(leaf, SoftClasses(classes.membership.detach()), eps_sq, "auto", guard)
    return torch.autograd.grad(value, leaf)[0]
