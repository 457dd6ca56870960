"""Thousands of classes where the inputs alone say nothing: V-MCR² in blocks beside cross-entropy, one network.

A class is a random 4-dimensional subspace of R^64. A fixed random network of two tanh layers maps its points into
R^512. 32 directions that all classes share are added, with 10 times the variance of that signal in all. There are 40
training and 10 test samples of each class. Settings were chosen with --held-out, which trains on 34 of the 40 and
measures on the other 6.

    python -m experiments.many_classes --classes 10000 --epochs 5   # writes its row of results/many-classes.json
    python -m experiments.many_classes --classes 300 --held-out     # prints only
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vmcr2 import VMCR2Loss
from vmcr2.losses import CrossEntropyLoss
from vmcr2.models import MLP

from ._study import RESULTS, environment

LATENT, INPUTS, RANK, NUISANCE = 64, 512, 4, 32
TRAIN, TEST, ASIDE = 40, 10, 6
FILE = "many-classes.json"


@dataclass(frozen=True)
class Plan:
    """What a run is, for both objectives alike."""

    classes: int
    epochs: int = 20
    dim: int = 128
    hidden: tuple[int, ...] = (1024, 1024)
    samples_per_class: int = 8
    lr: float = 1e-3
    weight_decay: float = 0.01
    atoms_per_class: int = RANK
    latch_every: int = 0
    """epochs; 0: the loss latches itself"""
    seed: int = 0

    @property
    def classes_per_batch(self) -> int:
        """P: an eighth of all, from 64 to 512."""
        return min(self.classes, max(64, min(512, self.classes // 8)))


class Samples(NamedTuple):
    """Inputs (n, 512) and labels (n,), class after class, as many of each."""

    x: Tensor
    labels: Tensor
    per_class: int


def make_data(classes: int, device: torch.device, seed: int = 0, *, held_out: bool = False) -> tuple[Samples, Samples]:
    """Training samples, and those to measure on: the test samples, or some that are set aside of the training's."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(LATENT, INPUTS, generator=generator) / LATENT**0.5
    second = torch.randn(INPUTS, INPUTS, generator=generator) / INPUTS**0.5
    nuisance = torch.linalg.qr(torch.randn(INPUTS, NUISANCE, generator=generator)).Q.T
    spread = 0.0
    parts: list[Tensor] = []
    for start in range(0, classes, 500):  # some at a time: the steps between are larger than the result
        some = min(500, classes - start)
        bases = torch.linalg.qr(torch.randn(some, LATENT, RANK, generator=generator)).Q
        # of unit variance in every latent direction, over all classes
        points = torch.randn(some, TRAIN + TEST, RANK, generator=generator) * (LATENT / RANK) ** 0.5 @ bases.mT
        signal = torch.tanh(torch.tanh(points @ first) @ second)
        spread = spread or math.sqrt(10 * float(signal.flatten(0, 1).var(0).sum()) / NUISANCE)
        noise = torch.randn(some, TRAIN + TEST, NUISANCE, generator=generator)
        parts.append(signal.add_(noise @ nuisance, alpha=spread).to(device))
    x = torch.cat(parts)
    x /= x[: min(500, classes)].std()
    cut, end = (TRAIN - ASIDE, TRAIN) if held_out else (TRAIN, TRAIN + TEST)
    labels = torch.arange(classes, device=device)
    return (
        Samples(x[:, :cut].flatten(0, 1), labels.repeat_interleave(cut), cut),
        Samples(x[:, cut:end].flatten(0, 1), labels.repeat_interleave(end - cut), end - cut),
    )


def batches(plan: Plan, samples: Samples, generator: torch.Generator) -> Iterator[Tensor]:
    """An epoch: every class is in as many batches as it has groups of S samples."""
    each, size = plan.samples_per_class, samples.per_class
    shuffled = torch.rand(plan.classes, size, generator=generator).argsort(1)
    for group in range(size // each):
        rows = shuffled[:, group * each : (group + 1) * each] + torch.arange(plan.classes).unsqueeze(1) * size
        for classes in torch.split(torch.randperm(plan.classes, generator=generator), plan.classes_per_batch):
            if len(classes) == plan.classes_per_batch:  # a part of a batch is left out
                yield rows[classes].flatten().to(samples.labels.device)


@torch.no_grad()
def embed(network: nn.Module, x: Tensor) -> Tensor:
    """Unit features in evaluation mode."""
    network.eval()
    z = torch.cat([network(part) for part in torch.split(x, 8192)])
    network.train()
    return z


@torch.no_grad()
def nearest_subspace(z: list[Tensor], of: tuple[Samples, Samples], classes: int, components: int) -> float:
    """Accuracy of the second part by the nearest class subspace of the first, some samples at a time."""
    known, asked = z
    fitted = VMCR2Loss(classes, known.shape[1], atoms_per_class=components, block=True, self_latch=False)
    fitted.to(known.device).latch(known, of[0].labels)
    atoms = fitted.dictionary.flatten(0, 1)
    right = 0
    for rows, labels in zip(torch.split(asked, 1024), torch.split(of[1].labels, 1024), strict=True):
        energy = (rows @ atoms.T).square_().view(len(rows), classes, components).sum(2)
        right += int((energy.argmax(1) == labels).sum())
    return right / len(asked)


def train(plan: Plan, data: tuple[Samples, Samples], objective: str) -> dict[str, Any]:
    """One network; its accuracies on the second part of the data."""
    samples, device = data[0], data[0].x.device
    torch.manual_seed(plan.seed)
    network = MLP(INPUTS, plan.dim, hidden=plan.hidden, batch_norm=True).to(device)
    block = VMCR2Loss(
        plan.classes,
        plan.dim,
        atoms_per_class=plan.atoms_per_class,
        block=True,
        scale=1.0,
        max_gradient=None,
        self_latch=plan.latch_every == 0,
        max_class_size=plan.samples_per_class,
        max_classes=plan.classes_per_batch,
        validate=False,
    )
    loss: nn.Module = (block if objective == "vmcr2" else CrossEntropyLoss(plan.dim, plan.classes)).to(device)
    parameters = [*network.parameters(), *loss.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=plan.lr, weight_decay=plan.weight_decay)
    steps = samples.per_class // plan.samples_per_class * (plan.classes // plan.classes_per_batch)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, plan.epochs * steps)
    generator = torch.Generator().manual_seed(plan.seed)
    start, latching = time.perf_counter(), 0.0
    for epoch in range(plan.epochs):
        if objective == "vmcr2" and plan.latch_every and epoch % plan.latch_every == 0:
            begin = time.perf_counter()
            block.latch(embed(network, samples.x), samples.labels)
            latching += time.perf_counter() - begin
        for rows in batches(plan, samples, generator):
            optimizer.zero_grad()
            call = block.surrogate if objective == "vmcr2" else loss
            call(network(samples.x[rows]), samples.labels[rows]).backward()
            optimizer.step()
            rate.step()
    if bool(block.fault):
        raise SystemExit("a step of block mode was not finite")
    features = [embed(network, part.x) for part in data]
    result = {
        "objective": objective,
        "seconds": round(time.perf_counter() - start, 1),
        "nearest_subspace": nearest_subspace(features, data, plan.classes, plan.atoms_per_class),
    }
    if isinstance(loss, CrossEntropyLoss):
        right = loss.predict(features[1]) == data[1].labels
        return result | {"head": float(right.float().mean())}
    return result | {"latching_seconds": round(latching, 1), "mean_trace": round(float(block.mean_trace), 3)}


def study(plan: Plan, device: torch.device, *, held_out: bool) -> dict[str, Any]:
    """Both objectives and the raw inputs, printed as they come."""
    data = make_data(plan.classes, device, plan.seed, held_out=held_out)
    print(f"{plan.classes} classes, {len(data[0].labels)} training samples", flush=True)
    inputs = [nn.functional.normalize(part.x) for part in data]
    raw = nearest_subspace(inputs, data, plan.classes, RANK)
    del inputs
    print(f"nearest subspace on the raw inputs: {raw:.4f} (chance {1 / plan.classes:.4f})", flush=True)
    rows = []
    for objective in ("vmcr2", "ce"):
        rows.append(train(plan, data, objective))
        print(rows[-1], flush=True)
    settings = {**asdict(plan), "batch_size": plan.classes_per_batch * plan.samples_per_class}
    return {"settings": settings, "device": str(device), "raw_nearest_subspace": raw, "objectives": rows}


def docs_row(classes: int, found: dict[str, Any]) -> str:
    """As the table in docs/objectives.md has it, without the machine."""
    block, ce = found["objectives"]
    figures = (found["raw_nearest_subspace"], block["nearest_subspace"], ce["head"], ce["nearest_subspace"])
    return "| " + " | ".join([f"{classes:,}", *(f"{value:.3f}" for value in figures)]) + " |"


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=Plan.epochs)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--held-out", action="store_true", help="measure on samples of the training part; only prints")
    parser.add_argument("--latch-every", type=int, default=Plan.latch_every, help="epochs; 0: the loss latches itself")
    given = parser.parse_args(arguments)
    plan = Plan(given.classes, epochs=given.epochs, latch_every=given.latch_every)
    found = study(plan, torch.device(given.device), held_out=given.held_out)
    if given.held_out:
        return
    path = RESULTS / FILE
    known = json.loads(path.read_text()) if path.exists() else {}
    known[str(plan.classes)] = {"environment": environment(), **found}  # runs are made on different machines
    path.write_text(json.dumps(known, indent=1) + "\n")
    print(f"the row of docs/objectives.md:\n{docs_row(plan.classes, found)}")


if __name__ == "__main__":
    main()
