"""The implementations of the objectives that are compared, all on the same batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..functional import Backend, rate_reduction
from ..losses import MCR2Loss, VMCR2Loss
from ._measure import Job
from ._textbook import batched_soft_loss, dense_variational_step

EXACT_LOOP = "exact, class loop of torch.logdet"
EXACT_DENSE = "exact, d×d per class"
EXACT = "exact, as shipped (gram)"
EXACT_STEP = "exact, training step"
DENSE = "V-MCR², d×d per class"
VARIATIONAL = "V-MCR², as shipped"
VARIATIONAL_RATE = "V-MCR², as shipped, with R(z)"
VARIATIONAL_STEP = "V-MCR², training step, with R(z)"
SOFT_BATCHED = "soft exact, batched d×d Cholesky with autograd"
SOFT = "soft exact, as shipped"
SOFT_BATCHED_MEMBERSHIP = "soft exact, batched d×d Cholesky with autograd, gradient in Π too"
SOFT_MEMBERSHIP = "soft exact, as shipped, gradient in Π too"

EPS_SQ, WEIGHT, NU = 0.5, 20.0, 5.0


class Size(NamedTuple):
    """One block of the table; q = atoms · k."""

    data: str
    m: int
    d: int
    k: int
    atoms: int
    many: bool = False
    """Whether to leave out contenders with d×d matrices per class, because there are too many classes."""
    labels: Literal["hard", "soft", "both"] = "hard"
    """Which contenders are compared: those with integer labels, with memberships, or all."""

    def has(self, contender: Contender) -> bool:
        """Whether a contender takes part at this size."""
        if self.many and contender.per_class:
            return False
        return self.labels in ("both", "soft" if contender.soft else "hard")

    @property
    def q(self) -> int:
        """Columns of the dictionary."""
        return self.atoms * self.k


class Batch:
    """Random unit features and labels of one size, the same for every contender."""

    def __init__(self, size: Size, device: torch.device, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.size = size
        self.device = device
        features = torch.nn.functional.normalize(torch.randn(size.m, size.d, generator=generator), dim=1)
        self.features = features.to(device)
        self.labels = torch.randint(0, size.k, (size.m,), generator=generator).to(device)
        self.class_size = int(torch.bincount(self.labels).max())
        self.membership = torch.softmax(2.0 * torch.randn(size.m, size.k, generator=generator), dim=1).to(device)

    def latched(self, batch_expansion: float) -> VMCR2Loss:
        """V-MCR² as the trainer sets it up: values are not checked in a step."""
        loss = VMCR2Loss(
            self.size.k,
            self.size.d,
            atoms_per_class=self.size.atoms,
            eps_sq=EPS_SQ,
            weight=WEIGHT,
            nu_dictionary=NU,
            nu_codes=NU,
            batch_expansion=batch_expansion,
            max_gradient=None,  # as in the trainer
            self_latch=False,
            scale=1.0,
            debias=False,  # as in the textbook contender
            validate=False,
        ).to(self.device)
        loss.latch(self.features, self.labels)
        return loss


class Ready(NamedTuple):
    """A contender on a batch."""

    loss: Callable[[Tensor], Tensor]
    """The loss of features; it normalises their rows first, as all contenders do."""
    fault: Tensor | None = None
    """The flag of a loss that does not check values."""
    membership: Tensor | None = None
    """Π, if a gradient in it is wanted."""


class Contender(NamedTuple):
    """An implementation of an objective."""

    make: Callable[[Batch], Ready]
    per_class: bool = False
    """Whether it uses d×d matrices for every class."""
    soft: bool = False
    """Whether its labels are memberships."""
    textbook: bool = False
    """Whether it is not this package's way, but what it is compared with."""
    not_captured: str | None = None


def _exact_by(backend: Backend, batch: Batch) -> Ready:
    def loss(z: Tensor) -> Tensor:
        unit = torch.nn.functional.normalize(z, dim=1)
        return -rate_reduction(
            unit, batch.labels, batch.size.k, eps_sq=EPS_SQ, backend=backend, validate=False, fault=fault
        ).delta

    fault = torch.zeros((), dtype=torch.bool, device=batch.device)
    return Ready(loss, fault)


def _exact(batch: Batch, *, step: bool) -> Ready:
    loss = MCR2Loss(batch.size.k, eps_sq=EPS_SQ, max_gradient=None, validate=False).to(batch.device)
    call = loss.surrogate if step else loss
    return Ready(lambda z: call(z, batch.labels), loss.fault)


def _variational(batch: Batch, *, batch_expansion: float, step: bool) -> Ready:
    loss = batch.latched(batch_expansion)
    call = loss.surrogate if step else loss
    return Ready(lambda z: call(z, batch.labels), loss.fault)


def _dense(batch: Batch) -> Ready:
    start = batch.latched(0.0)
    dictionary, codes = start.dictionary.float(), start.codes.float()

    def loss(z: Tensor) -> Tensor:
        unit = torch.nn.functional.normalize(z, dim=1)
        return dense_variational_step(
            *(unit, batch.labels, dictionary, codes),
            eps_sq=EPS_SQ,
            weight=WEIGHT,
            nu=NU,
            class_size=batch.class_size,
            at_a_time=batch.size.k if batch.device.type == "cuda" else 1,
        )[0]

    return Ready(loss)


def _soft(batch: Batch, *, shipped: bool, with_membership: bool) -> Ready:
    membership = batch.membership.clone().requires_grad_(with_membership)
    fault = torch.zeros((), dtype=torch.bool, device=batch.device)

    def loss(z: Tensor) -> Tensor:
        unit = torch.nn.functional.normalize(z, dim=1)
        if not shipped:
            return batched_soft_loss(unit, membership, EPS_SQ)
        return -rate_reduction(unit, membership, eps_sq=EPS_SQ, validate=False, fault=fault).delta

    return Ready(loss, fault if shipped else None, membership if with_membership else None)


CONTENDERS = {
    EXACT_LOOP: Contender(
        partial(_exact_by, "loop"),
        per_class=True,
        textbook=True,
        not_captured="it waits for the device to find the samples of every class",
    ),
    EXACT_DENSE: Contender(partial(_exact_by, "covariance"), per_class=True, textbook=True),
    EXACT: Contender(partial(_exact, step=False)),
    EXACT_STEP: Contender(partial(_exact, step=True)),
    DENSE: Contender(_dense, per_class=True, textbook=True),
    VARIATIONAL: Contender(partial(_variational, batch_expansion=0.0, step=False)),
    VARIATIONAL_RATE: Contender(partial(_variational, batch_expansion=0.1, step=False)),
    VARIATIONAL_STEP: Contender(partial(_variational, batch_expansion=0.1, step=True)),
    SOFT_BATCHED: Contender(partial(_soft, shipped=False, with_membership=False), soft=True, textbook=True),
    SOFT: Contender(partial(_soft, shipped=True, with_membership=False), soft=True),
    SOFT_BATCHED_MEMBERSHIP: Contender(partial(_soft, shipped=False, with_membership=True), soft=True, textbook=True),
    SOFT_MEMBERSHIP: Contender(partial(_soft, shipped=True, with_membership=True), soft=True),
}


def job_for(ready: Ready, features: Tensor) -> Job:
    """Forward and backward on buffers that stay at one address, so that a CUDA graph can record it."""
    z = features.clone().requires_grad_()

    def job() -> None:
        z.grad = None
        if ready.membership is not None:
            ready.membership.grad = None
        torch.autograd.backward(ready.loss(z))

    return job
