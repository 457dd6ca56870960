"""How hard an objective pulls a sample, by how much of it lies in its own class: exact MCR² and V-MCR² on CIFAR-10.

A network is trained with each objective. Then every training image gets two numbers, un-augmented: the share of its
feature in the subspace of its own class (1: it lies in it, 0: orthogonal to it), and the length of its objective's
gradient along the sphere. The table has the mean gradient by the share, beside the samples that lie there.

    python -m experiments.pull                # trains, writes results/pull.json and the table of docs/tuning-log.md

Three quarters of an hour on two CPU cores. The data are found as everywhere (VMCR2_DATA); no test image is read.
"""

from __future__ import annotations

import itertools
from typing import Any, cast

import torch
from torch import Tensor

from vmcr2.runs import Config, Run, recipe

from ._study import table
from ._trained import Study, carry_out
from .defaults._trial import HELD_OUT

EPOCHS = 30
EDGES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
NAMES = {"mcr2": "exact MCR²", "vmcr2 0": "V-MCR², no focus", "vmcr2 100": "V-MCR², focus 100"}


def configs(epochs: int, **changes: Any) -> dict[str, Config]:
    """The recipes, in a short run: a shorter running mean, latched more often, and pictures that are not mixed."""
    own: dict[str, Any] = {"epochs": epochs, "holdout": HELD_OUT, "average": 0.99, "average_flips": False}
    own |= {"average_shifts": 0, "precision": "bfloat16", "eval_every": 1_000_000} | changes
    found = {"mcr2": recipe("cifar10-mcr2", **own)}
    for focus in (0.0, 100.0):
        changed = recipe("cifar10-vmcr2", mix="none", latch_every=5, focus=focus, **own)
        found[f"vmcr2 {focus:g}"] = changed
    return found


def pull(loss: torch.nn.Module, z: Tensor, labels: Tensor) -> Tensor:
    """The length of the gradient of each row along the sphere, (n,): all rows are one batch, and nothing learns."""
    leaf = z.clone().requires_grad_()
    loss.eval()(leaf, labels).backward()
    assert leaf.grad is not None
    along = leaf.grad - (leaf.grad * z).sum(1, keepdim=True) * z
    return cast(Tensor, along.norm(dim=1))


def by_share(shares: Tensor, pulls: Tensor, right: Tensor) -> list[dict[str, float]]:
    """A line for each range of shares."""
    lines = []
    for low, high in itertools.pairwise(EDGES):
        there = (shares >= low) & ((shares < high) | (high == EDGES[-1]))
        count = int(there.sum())
        line = {"from": low, "to": high, "samples": count, "wrong": int((there & ~right).sum())}
        lines.append(line | ({"pull": pulls[there].mean().item()} if count else {}))
    return lines


def measured(run: Run, images: Tensor, labels: Tensor) -> dict[str, Any]:
    """Of a finished run, on the images that it was trained on."""
    z = run.features(images).float()
    residuals = run.classifier.residuals(z)
    shares = 1 - residuals.gather(1, labels.unsqueeze(1))[:, 0]
    right = residuals.argmin(1) == labels
    return {
        "holdout_accuracy": run.summary["holdout_accuracy"],
        "train_accuracy": right.double().mean().item(),
        "train_delta_r": run.summary["train_delta_r"],
        "lines": by_share(shares, pull(run.objective, z, labels), right),
    }


def shown(results: dict[str, Any]) -> str:
    """The table: samples and wrong ones in percent of all, and the mean pull in percent of the strongest range's."""
    header = ["share in its own subspace", *(f"{NAMES[name]}: samples, wrong, pull" for name in results)]
    rows = []
    for at, (low, high) in enumerate(itertools.pairwise(EDGES)):
        row = [f"{low:g} to {high:g}"]
        for found in results.values():
            line, lines = found["lines"][at], found["lines"]
            total = sum(one["samples"] for one in lines)
            strongest = max(one.get("pull", 0.0) for one in lines)
            pulled = f"{line['pull'] / strongest:.2f}" if "pull" in line else "–"
            row.append(f"{line['samples'] / total:.1%}, {line['wrong'] / total:.1%}, {pulled}")
        rows.append(row)
    return table(header, rows)


STUDY = Study("pull", "cifar10", EPOCHS, configs, measured, shown)

if __name__ == "__main__":
    carry_out(STUDY, __doc__)
