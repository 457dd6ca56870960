"""What an objective does to the features, ∂loss/∂z, without its value: all that a training step needs.

The value costs a second factorisation of R^v and a second ΓᵀΓ, or log-dets, and only a log reads it. Branches that do
not wait for each other run side by side on a GPU; each has a flag of its own, joined at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from . import _mismatch
from ._classes import Classes, SoftClasses
from ._linalg import Guard
from ._logdets import compression, expansion_gradient, hard_compression
from ._pairs import same_class_pairs
from ._problem import OwnTerms, Problem, Scalar
from ._streams import Aside

Move = Callable[[Problem, OwnTerms, _mismatch.DataTerms], tuple[Tensor, Tensor]]
"""Algorithm 1's step on Γ and Â: from the terms at the old ones to the new ones."""


class Ahead(NamedTuple):
    """What a variational step needs of the labels, Γ and Â alone: it can be made before the features are there."""

    classes: Classes
    own: OwnTerms


def exact_pull(z: Tensor, classes: Classes, eps_sq: float, guard: Guard) -> Tensor:
    """∂(R_c − R)/∂z of checked rows no longer than 1."""
    with Aside(z) as side:
        spreading = _Branch(z, guard)
        by_expansion = expansion_gradient(z, eps_sq, spreading.guard)
    if isinstance(classes, SoftClasses):
        by_compression = _soft_compression_gradient(z, classes, eps_sq, guard)
    else:
        by_compression = hard_compression(z, classes, eps_sq, "auto", guard, with_gradient=True)[1]
    side.join()
    spreading.report()
    return by_compression - by_expansion


def variational_pull(
    z: Tensor,
    classes: Classes,
    dictionary: Tensor,
    codes: Tensor,
    own: OwnTerms | None,
    move: Move | None,
    *,
    eps_sq: float,
    weight: Scalar,
    batch_expansion: Tensor | None,
    debias: bool,
    guard: Guard,
) -> tuple[Tensor, Tensor, Tensor]:
    """∂((μ/2m)M − β·R)/∂z at the new (Γ, Â), and these; ``move`` None leaves them, β None leaves R out.

    ``own`` are the terms of the old ones where they were made before.
    """
    with Aside(z, 0) as pairing:
        gathering = _Branch(z, guard)
        pairs = same_class_pairs(z, classes, debias, gathering.guard)
    with Aside(z, 1) as side:
        spreading = _Branch(z, guard)
        spread = None if batch_expansion is None else expansion_gradient(z, eps_sq, spreading.guard) * batch_expansion
    problem = Problem(z, classes, pairs, eps_sq, weight, guard)
    if move is not None:
        own = problem.own_terms(dictionary, codes) if own is None else own
        data = problem.data_terms(dictionary, codes)
        pairing.join()
        dictionary, codes = move(problem, own, data)
    model = _mismatch.modelled(z, classes, dictionary, codes)
    pairing.join()
    pull = (pairs.pull - model).mul_(4.0 / len(z) * weight)
    side.join()
    gathering.report()
    spreading.report()
    return pull if spread is None else pull.sub_(spread), dictionary, codes


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
