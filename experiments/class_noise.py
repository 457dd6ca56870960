"""What V-MCR² could gain from class statistics that are carried over batches: how much of its noise comes from them.

The mismatch M needs the second moment Ĉ_j of every class, and a batch of CIFAR-100 holds 20 samples of one. A memory
of past features would give a steadier Ĉ_j, as it does for exact MCR². Here a network is trained at a constant rate,
and stopped. At these weights, the gradient in the weights is computed for 20 batches: with the batch's own class
statistics, and with those of all 20 batches together, which is the best that a memory could give. What differs from
batch to batch is noise. Γ moves with that noise too: it takes 20 steps by one batch each, and 20 by all of them.

    python -m experiments.class_noise    # trains, writes results/class-noise.json and the table of docs/tuning-log.md

An hour on one CPU core. The data are found as everywhere (VMCR2_DATA); no test image is read.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from vmcr2 import MCR2Loss, VMCR2Loss
from vmcr2.data import augment_crop
from vmcr2.functional import Guard, read_classes, same_class_pairs
from vmcr2.runs import Config, Run, recipe

from ._study import table
from ._trained import Study, carry_out
from .defaults._trial import HELD_OUT, flat

EPOCHS = 20
BATCHES = 20
"""As many as a memory of 40,000 rows holds."""
NAMES = {"free": "free codes (the recipe)", "flat": "flat codes, focus 3"}
OBJECTIVES = {"vmcr2": "V-MCR²", "mcr2": "exact MCR²"}
WAYS = ("of the batch", "of all")
_DRAW = 1_000_000
"""An epoch that no run reaches: pictures that it has not seen in this way."""


def configs(epochs: int) -> dict[str, Config]:
    """The recipe in the middle of a run: a constant rate and no running mean, latched more often."""
    own: dict[str, Any] = {
        "epochs": epochs,
        "holdout": HELD_OUT,
        "schedule": "constant",
        "average": 0.0,
        "latch_every": 5,
    }
    own |= {"precision": "bfloat16", "eval_every": 1_000_000, "calibration_share": 0.0}
    focused = flat(5) | {"focus": 3.0, "weight_decay": 2e-3}
    return {"free": recipe("cifar100-vmcr2", **own), "flat": recipe("cifar100-vmcr2", **own | focused)}


def batches(images: Tensor, labels: Tensor, size: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pictures as training sees them, with their labels; no picture comes twice."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1))
    for rows in torch.split(order[: size * count], size):
        yield augment_crop(images, rows, torch.tensor(_DRAW), seed=1), labels[rows]


def moment_products(z: Tensor, labels: Tensor, moments: Tensor) -> Tensor:
    """C_j z_i with given moments (k, d, d) of the classes."""
    products = torch.zeros_like(z)
    for j, moment in enumerate(moments):
        products[labels == j] = z[labels == j] @ moment
    return products


def own_products(z: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Ĉ_j z_i as the debiased loss has it: of the other samples of the class in the batch."""
    guard = Guard()
    return same_class_pairs(z, read_classes(labels, z, num_classes, guard), True, guard).moment_products


def moments_of(z: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """C_j = Z_jᵀZ_j/n_j, (k, d, d)."""
    members = [z[labels == j] for j in range(num_classes)]
    return torch.stack([P.T @ P / max(1, len(P)) for P in members])


def variational(loss: VMCR2Loss, z: Tensor, labels: Tensor, carried: Tensor) -> tuple[Tensor, Tensor]:
    """V-MCR²'s gradient in the features, Γ and A as they are: by the batch's own Ĉ_j, and by the carried ones."""
    leaf = z.clone().requires_grad_()
    loss.eval()(leaf, labels).backward()
    assert leaf.grad is not None
    assert loss.weight is not None
    factor = 4.0 * loss.scale * float(loss.weight) / len(z)
    return leaf.grad, leaf.grad + factor * (moment_products(z, labels, carried) - own_products(z, labels, len(carried)))


def exact(loss: MCR2Loss, z: Tensor, labels: Tensor) -> Tensor:
    """Exact MCR²'s gradient in the features; the rows of its memory count too, and the batch replaces the oldest."""
    leaf = z.clone().requires_grad_()
    loss.train()(leaf, labels).backward()
    assert leaf.grad is not None
    return leaf.grad


def remembering(z: Tensor, labels: Tensor, num_classes: int, eps_sq: float) -> MCR2Loss:
    """Exact MCR² that has seen all of these rows."""
    loss = MCR2Loss(num_classes, eps_sq=eps_sq, memory=len(z), dim=z.shape[1], max_gradient=None, normalize=False)
    loss.memory_features.copy_(z)
    loss.memory_labels.copy_(labels)
    return loss


class Spread:
    """Of vectors that come one by one: the part that they share, and the part in which they differ."""

    def __init__(self) -> None:
        self.count, self.squares = 0, 0.0
        self.total: Tensor | None = None

    def add(self, vector: Tensor) -> None:
        """One more."""
        self.count += 1
        self.squares += vector.double().square().sum().item()
        self.total = vector.clone() if self.total is None else self.total.add_(vector)

    @property
    def mean(self) -> Tensor:
        """Of all vectors so far."""
        assert self.total is not None
        return self.total.double() / self.count

    def noise_to_signal(self) -> float:
        """E‖g − ḡ‖² over ‖ḡ‖², both without the bias of a small number of vectors; ∞ if these show no signal."""
        of_mean = self.mean.square().sum().item()
        noise = (self.squares - self.count * of_mean) / (self.count - 1)
        signal = of_mean - noise / self.count
        return noise / signal if signal > 0 else math.inf


def agreement(one: Tensor, other: Tensor) -> float:
    """The cosine between two vectors."""
    return torch.nn.functional.cosine_similarity(one, other, dim=0).item()


def pulls_after(loss: VMCR2Loss, z: Tensor, labels: Tensor, steps: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Γ Diag(Â_j) Γᵀ z_i after these steps on Γ and A, which begin from the loss's own."""
    moved = copy.deepcopy(loss).train()
    for rows, own in steps:
        moved.update(rows, own)
    coordinates = (z @ moved.dictionary) * moved.codes.T[labels]
    return coordinates @ moved.dictionary.T


def measured(run: Run, images: Tensor, labels: Tensor, count: int = BATCHES) -> dict[str, Any]:
    """Of a run, at its last weights, on pictures that it was trained on."""
    loss, num_classes, config = cast(VMCR2Loss, run.objective), len(run.class_names), run.config
    network, found = run.model.train(), [*batches(images, labels, config.optim.batch_size, count)]
    with torch.no_grad():
        parts = [(network(x), own) for x, own in found]
    z, own_labels = (torch.cat(one) for one in zip(*parts, strict=True))
    carried = moments_of(z, own_labels, num_classes)
    plain = MCR2Loss(num_classes, eps_sq=config.objective.eps_sq, max_gradient=None, normalize=False)
    with_memory = remembering(z, own_labels, num_classes, config.objective.eps_sq)
    weights = [one for one in network.parameters() if one.requires_grad]
    spreads = {(name, way): Spread() for name in OBJECTIVES for way in WAYS}
    for x, own in found:
        features = network(x)
        at = features.detach()
        by = {
            "vmcr2": variational(loss, at, own, carried),
            "mcr2": (exact(plain, at, own), exact(with_memory, at, own)),
        }
        for objective, both in by.items():
            for way, gradient in zip(WAYS, both, strict=True):
                in_weights = torch.autograd.grad(features, weights, gradient, retain_graph=True)
                spreads[objective, way].add(torch.cat([one.flatten() for one in in_weights]))
    by_batches = pulls_after(loss, z, own_labels, parts)
    by_all = pulls_after(loss, z, own_labels, [(z, own_labels)] * count)
    return {
        "holdout_accuracy": run.summary["holdout_accuracy"],
        "codes_trace": loss.codes.sum(0).mean().item(),
        "noise_to_signal": {name: [spreads[name, way].noise_to_signal() for way in WAYS] for name in OBJECTIVES},
        "cosine_of_means": {
            name: agreement(spreads[name, WAYS[0]].mean, spreads[name, WAYS[1]].mean) for name in OBJECTIVES
        },
        "pulls_differ": ((by_batches - by_all).norm() / by_all.norm()).item(),
    }


def shown(results: dict[str, Any]) -> str:
    """The table: two lines for each network, and what belongs to both of them in the first."""
    titles = OBJECTIVES.values()
    header = [
        "a network trained with",
        "trace of its codes",
        "class statistics",
        *(f"{title}: noise" for title in titles),
    ]
    header += [*(f"{title}: cosine of the two means" for title in titles), "V-MCR²'s pulls differ by"]
    rows = []
    for name, found in results.items():
        noises = [found["noise_to_signal"][objective] for objective in OBJECTIVES]
        cosines = [f"{found['cosine_of_means'][objective]:.3f}" for objective in OBJECTIVES]
        first = [NAMES[name], f"{found['codes_trace']:.1f}", WAYS[0], *(f"{noise[0]:.2f}" for noise in noises)]
        rows.append([*first, *cosines, f"{found['pulls_differ']:.1%}"])
        rows.append(["", "", WAYS[1], *(f"{noise[1]:.2f}" for noise in noises), "", "", ""])
    return table(header, rows)


STUDY = Study("class-noise", "cifar100", EPOCHS, configs, measured, shown)

if __name__ == "__main__":
    carry_out(STUDY, __doc__)
