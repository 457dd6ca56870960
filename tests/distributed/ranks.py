"""A plain DDP loop, as each process of the tests runs it, and the same in one process."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vmcr2 import MCR2Loss, VMCR2Loss
from vmcr2.losses import CrossEntropyLoss

CLASSES, DIM, INPUTS, STEPS = 5, 12, 9, 20
EVEN = (1, 1, 1, 1)
UNEVEN = (4, 1, 2, 3)


def batch(step: int) -> tuple[Tensor, Tensor]:
    """The whole batch of a step, 60 rows; classes come in order, so that a process lacks some."""
    generator = torch.Generator().manual_seed(step)
    labels = torch.arange(60) * CLASSES // 60
    x = torch.randn(60, INPUTS, generator=generator, dtype=torch.float64)
    return x + 3 * torch.eye(INPUTS, dtype=torch.float64)[labels], labels


def share(total: int, parts: tuple[int, ...], rank: int) -> slice:
    """The rows of a process; a part of 0 has none."""
    ends = [total * sum(parts[: at + 1]) // sum(parts) for at in range(len(parts))]
    return slice(ends[rank - 1] if rank else 0, ends[rank])


def network(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, 32), nn.Tanh(), nn.Linear(32, DIM)).to(dtype)


class Sum(nn.Module):
    """Cross-entropy and a rate reduction."""

    def __init__(self, rate: nn.Module, gather: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.rate, self.ce = rate, CrossEntropyLoss(DIM, CLASSES, gather=gather)

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        return self.ce(nn.functional.normalize(z), labels) + 0.1 * self.rate(z, labels)


class Weighted(CrossEntropyLoss):
    """A class has a weight."""

    def forward(self, z: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        return super().forward(z, labels, (1 + labels).to(z.dtype))


def make_loss(kind: str, gather: bool, dtype: torch.dtype) -> nn.Module:
    if kind.startswith("ce + "):
        return Sum(make_loss(kind.removeprefix("ce + "), gather, dtype), gather).to(dtype)
    if kind.startswith("ce"):
        torch.manual_seed(1)
        return (Weighted if "weights" in kind else CrossEntropyLoss)(DIM, CLASSES, gather=gather).to(dtype)
    if kind == "mcr2":
        return MCR2Loss(CLASSES, gather=gather).to(dtype)
    if kind == "mcr2 with memory":
        return MCR2Loss(CLASSES, memory=180, dim=DIM, gather=gather).to(dtype)
    if kind == "mcr2 with soft memory":
        return MCR2Loss(CLASSES, memory=180, dim=DIM, soft_memory=True, gather=gather).to(dtype)
    own: dict[str, Any] = {"atoms_per_class": 3, "gather": gather}
    if kind == "vmcr2, Eq. 7":
        own |= {"batch_expansion": 0.0, "max_gradient": None, "self_latch": False}
    if "in blocks" in kind:
        own |= {"block": True, "refresh_every": 7}
    return VMCR2Loss(CLASSES, DIM, **own).to(dtype)


KINDS = (
    "ce",
    "ce with weights",
    "ce + mcr2",
    "ce + mcr2 with memory",
    "ce + vmcr2",
    "mcr2",
    "mcr2 with memory",
    "vmcr2",
    "vmcr2, Eq. 7",
    "vmcr2 in blocks",
    "surrogate vmcr2 in blocks",
    "soft mcr2",
    "soft mcr2 with soft memory",
    "soft vmcr2",
    "surrogate mcr2",
    "surrogate vmcr2",
)


def memberships(labels: Tensor, dtype: torch.dtype) -> Tensor:
    return 0.9 * nn.functional.one_hot(labels, CLASSES).to(dtype) + 0.1 / CLASSES


def train(kind: str, rows: Any, model: nn.Module, loss: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """Weights, the loss's state and the first gradient. ``rows`` are a process's own rows of every batch."""
    soft, by_surrogate = kind.startswith("soft"), kind.startswith("surrogate")
    optimiser = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.05, momentum=0.9)
    found: dict[str, Tensor] = {}
    for step in range(STEPS):
        x, labels = batch(step)
        x, labels = x[rows].to(dtype), labels[rows]
        optimiser.zero_grad()
        z, y = model(x), memberships(labels, dtype) if soft else labels
        value = loss.surrogate(z, y, loss.look_ahead(y)) if by_surrogate else loss(z, y)
        value.backward()
        if step == 0:
            found |= {f"gradient {at}": p.grad.clone() for at, p in enumerate(model.parameters()) if p.grad is not None}
        optimiser.step()
        found[f"value {step}"] = value.detach()
    found |= {f"weight {at}": parameter.detach().clone() for at, parameter in enumerate(model.parameters())}
    return found | {f"state {name}": value.clone() for name, value in loss.state_dict().items()}


def alone(kind: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """One process with all rows."""
    base = kind.removeprefix("soft ").removeprefix("surrogate ")
    return train(kind, slice(None), network(dtype), make_loss(base, False, dtype), dtype)


def same_everywhere(tensor: Tensor) -> bool:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return all(torch.equal(part, tensor) for part in parts)


def plain_loops(rank: int, world: int) -> dict[str, Any]:
    """All cases of the plain loop."""
    results: dict[str, Any] = {}
    none = (0, *UNEVEN[1:])
    for kind in KINDS:
        for name, parts, dtype in (
            ("even", EVEN, torch.float64),
            ("uneven", UNEVEN, torch.float64),
            ("one without rows", none, torch.float64),
            ("float32", UNEVEN, torch.float32),
        ):
            rows = share(60, parts[:world], rank)
            base = kind.removeprefix("soft ").removeprefix("surrogate ")
            model = DistributedDataParallel(network(dtype))
            found = train(kind, rows, model, make_loss(base, True, dtype), dtype)
            identical = [same_everywhere(value) for key, value in found.items()]
            results[f"{kind}, {name}"] = (found, all(identical))
    return results | {"without": without_gather(rank, world)}


def without_gather(rank: int, world: int) -> dict[str, Any]:
    """What plain DDP gives: gradients, and what is said about it."""
    found: dict[str, Any] = {}
    for kind in ("mcr2", "vmcr2"):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            own = train(
                kind,
                share(60, EVEN[:world], rank),
                DistributedDataParallel(network(torch.float64)),
                make_loss(kind, False, torch.float64),
                torch.float64,
            )
        found[kind] = (own, [str(one.message) for one in said if "gather=True" in str(one.message)])
    return found
