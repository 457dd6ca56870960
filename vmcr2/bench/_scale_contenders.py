"""Training steps of the objectives on batches of some of many classes: what `vmcr2 bench scale` compares."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..losses import CrossEntropyLoss, MCR2Loss, VMCR2Loss
from ._measure import Job

EXACT = "exact MCR²"
SOFT = "exact MCR², memberships"
SHARED = "V-MCR², shared dictionary"
BLOCK = "V-MCR², block"
HEAD = "cross-entropy's head"

_DRAWS = 4  # batches that take turns: each has other classes


class Shape(NamedTuple):
    """What stays fixed while k grows: rows of a batch, features, atoms per class, rows of a class in a batch."""

    m: int
    d: int
    atoms: int
    each: int

    def present(self, k: int) -> int:
        """Classes of a batch: m/each, or all k if there are fewer, which then have more rows each."""
        return min(k, self.m // self.each)


SHAPES = {"cuda": Shape(4096, 512, 4, 8), "cpu": Shape(1024, 128, 2, 8)}


class Turns:
    """Random unit features and labels in buffers that stay; :meth:`next` fills them with another batch."""

    def __init__(self, shape: Shape, k: int, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(0)
        self.shape, self.k, self.device = shape, k, device
        order = torch.arange(shape.m, device=device) % shape.present(k)
        drawn = [torch.randperm(k, generator=generator, device=device)[order] for _ in range(_DRAWS)]
        rows = [torch.randn(shape.m, shape.d, generator=generator, device=device) for _ in range(_DRAWS)]
        self._labels, self._rows = drawn, [nn.functional.normalize(own, dim=1) for own in rows]
        self.z, self.labels = rows[0].clone().requires_grad_(), drawn[0].clone()
        self._turn = itertools.cycle(range(_DRAWS))

    @property
    def largest_class(self) -> int:
        """Rows of the largest class of a batch."""
        return -(-self.shape.m // self.shape.present(self.k))

    @torch.no_grad()
    def next(self) -> None:
        """Another batch."""
        at = next(self._turn)
        self.z.copy_(self._rows[at])
        self.labels.copy_(self._labels[at])

    def unit_atoms(self, *sizes: int) -> Tensor:
        """Random, with unit rows."""
        generator = torch.Generator(self.device).manual_seed(1)
        return nn.functional.normalize(torch.randn(*sizes, generator=generator, device=self.device), dim=-1)


class Prepared(NamedTuple):
    """A contender at one k."""

    module: nn.Module
    loss: Callable[[], Tensor]
    """Of the batch in the buffers."""

    def job(self, turns: Turns) -> Job:
        """Forward and backward on the buffers, so that a CUDA graph can record it."""

        def step() -> None:
            turns.z.grad = None
            self.module.zero_grad(set_to_none=True)
            torch.autograd.backward(self.loss())

        return step

    @property
    def state_bytes(self) -> int:
        """Of its parameters and buffers: they stay in memory between steps."""
        return sum(own.numel() * own.element_size() for own in (*self.module.parameters(), *self.module.buffers()))


class Contender(NamedTuple):
    """What is timed, and how time and memory of a step grow with k at most: as k to this power."""

    make: Callable[[Turns], Prepared]
    growth: float = 1.0


def _exact(turns: Turns) -> Prepared:
    loss = MCR2Loss(turns.k, max_gradient=None, max_class_size=turns.largest_class, validate=False).to(turns.device)
    return Prepared(loss, lambda: loss.surrogate(turns.z, turns.labels))


def _soft(turns: Turns) -> Prepared:
    """Labels that are smoothed a little."""
    loss = MCR2Loss(turns.k, max_gradient=None, validate=False).to(turns.device)
    smoothed = torch.full((turns.shape.m, turns.k), 0.1 / turns.k, device=turns.device)
    smoothed.scatter_add_(1, turns.labels[:, None], torch.full_like(smoothed[:, :1], 0.9))
    loss.register_buffer("membership", smoothed)
    return Prepared(loss, lambda: loss.surrogate(turns.z, smoothed))


def _shared(turns: Turns) -> Prepared:
    loss = _variational(turns)
    k, s = turns.k, turns.shape.atoms
    loss.dictionary.copy_(turns.unit_atoms(k * s, turns.shape.d).T)
    own = torch.eye(k, device=turns.device).repeat_interleave(s, dim=0)  # a class uses its own atoms, as if latched
    loss.codes.copy_(own / s)
    return _latched(loss, turns)


def _block(turns: Turns) -> Prepared:
    loss = _variational(turns, block=True, max_classes=turns.shape.present(turns.k))
    loss.dictionary.copy_(turns.unit_atoms(turns.k, turns.shape.atoms, turns.shape.d))
    loss.codes.fill_(1 / turns.shape.atoms)
    loss.refresh()
    return _latched(loss, turns)


def _variational(turns: Turns, **block: object) -> VMCR2Loss:
    """As the trainer sets it up."""
    settings: dict[str, object] = {"self_latch": False, "max_gradient": None, "validate": False} | block
    return VMCR2Loss(
        turns.k,
        turns.shape.d,
        atoms_per_class=turns.shape.atoms,
        max_class_size=turns.largest_class,
        **settings,  # type: ignore[arg-type]
    ).to(turns.device)


def _latched(loss: VMCR2Loss, turns: Turns) -> Prepared:
    loss.latched.fill_(True)
    return Prepared(loss, lambda: loss.surrogate(turns.z, turns.labels))


def _head(turns: Turns) -> Prepared:
    loss = CrossEntropyLoss(turns.shape.d, turns.k).to(turns.device)
    return Prepared(loss, lambda: loss(turns.z, turns.labels))


CONTENDERS = {
    EXACT: Contender(_exact),
    SOFT: Contender(_soft),
    SHARED: Contender(_shared, growth=2.0),
    BLOCK: Contender(_block),
    HEAD: Contender(_head),
}
