"""The losses with their defaults in somebody's own loop: four networks × four optimisers, and ways to latch.

    python -m experiments.loops             # seed 0, about twelve minutes; writes results/loops.json, prints tables
    python -m experiments.loops --seeds 3

The loop is README's: ``loss(network(x), labels).backward()``. Data: 1437 of sklearn's digits, 100 epochs, batch 128,
d = 128. The figure is the full-train ΔR in evaluation mode divided by its maximum, 50.83; beside it is the accuracy of
the nearest subspace on the other 360 digits. "Before" is the same loss without its bound and without self-latching.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, NamedTuple

from ._study import run_all, save, table

LOSSES = {"vmcr2": "V-MCR²", "mcr2": "exact MCR²"}
NETWORKS = {
    "conv": "convolutions",
    "conv-bn": "convolutions, BatchNorm",
    "mlp": "MLP",
    "mlp-bn": "MLP, BatchNorm",
}
OPTIMISERS = {
    "sgd 0.1 0.9": "SGD 0.1, momentum 0.9",
    "sgd 0.01 0.9": "SGD 0.01, momentum 0.9",
    "sgd 0.1 0": "SGD 0.1",
    "adamw": "AdamW 0.001",
}
LATCHING = {
    "never": "never (random atoms)",
    "first": "first batch only",
    "self": "self-latching (default)",
    "paper": "the training set, every 50 epochs",
}
DIM, CLASSES, ATOMS, EPOCHS = 128, 10, 12, 100


class Job(NamedTuple):
    """One training."""

    loss: str
    network: str
    optimiser: str
    seed: int
    batch: int = 128
    epochs: int = EPOCHS
    before: bool = False
    latching: str = "self"


def network_of(name: str) -> Any:
    """A new network from 64 pixels to 128 features."""
    from torch import nn

    def norm(layer: type, width: int) -> list[Any]:
        return [layer(width)] if name.endswith("-bn") else []

    if name.startswith("mlp"):
        hidden = [[nn.Linear(a, 256), *norm(nn.BatchNorm1d, 256), nn.ReLU()] for a in (64, 256)]
        return nn.Sequential(*hidden[0], *hidden[1], nn.Linear(256, DIM))
    shapes = ((1, 16), (16, 32))
    layers = [[nn.Conv2d(a, b, 3, padding=1), *norm(nn.BatchNorm2d, b), nn.ReLU()] for a, b in shapes]
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), *layers[0], *layers[1], nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, DIM)
    )


def loss_of(job: Job) -> Any:
    """A new loss."""
    import vmcr2

    plain: dict[str, Any] = {"max_gradient": None} if job.before else {}
    if job.loss == "mcr2":
        return vmcr2.MCR2Loss(CLASSES, **plain)
    self_latch = job.latching == "self" and not job.before
    return vmcr2.VMCR2Loss(CLASSES, DIM, atoms_per_class=ATOMS, self_latch=self_latch, **plain)


def optimiser_of(name: str, parameters: Any) -> Any:
    """A new optimiser."""
    import torch

    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-3)
    _, rate, momentum = name.split()
    return torch.optim.SGD(parameters, lr=float(rate), momentum=float(momentum))


def train(job: Job) -> dict[str, Any]:
    """README's loop, and its figures."""
    import torch
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    import vmcr2

    torch.set_num_threads(1)
    X, y = load_digits(return_X_y=True)
    parts = train_test_split(X / 16, y, test_size=0.2, stratify=y, random_state=0)
    x, x_test, labels, truth = (torch.as_tensor(part) for part in parts)
    x, x_test = x.float(), x_test.float()
    torch.manual_seed(job.seed)
    network, loss = network_of(job.network), loss_of(job)
    optimiser = optimiser_of(job.optimiser, network.parameters())

    def features(images: Any) -> Any:
        network.eval()
        with torch.no_grad():
            z = torch.nn.functional.normalize(network(images), dim=1)
        network.train()
        return z

    if job.latching == "never":
        loss.latched.fill_(True)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for epoch in range(job.epochs):
            if job.latching == "paper" and epoch % 50 == 0:
                loss.latch(features(x), labels)
            order = torch.randperm(len(x))
            for rows in torch.split(order, job.batch)[: max(1, len(x) // job.batch)]:
                optimiser.zero_grad()
                loss(network(x[rows]), labels[rows]).backward()
                optimiser.step()
    seconds = time.perf_counter() - start
    z = features(x)
    rates = vmcr2.rate_reduction(z, labels, CLASSES)
    best = vmcr2.functional.maximal_rate_reduction(DIM, CLASSES)
    right = vmcr2.NearestSubspace().fit(z, labels).predict(features(x_test)) == truth
    return job._asdict() | {
        "delta": rates.delta.item() / best,
        "expansion": rates.expansion.item(),
        "accuracy": right.double().mean().item(),
        "warned": any(issubclass(each.category, vmcr2.CollapseWarning) for each in caught),
        "seconds": seconds,
    }


def battery(seeds: int) -> list[Job]:
    """Four networks × four optimisers, for both losses, now and before."""
    cells = [(loss, network, name) for loss in LOSSES for network in NETWORKS for name in OPTIMISERS]
    return [Job(*cell, seed=seed) for seed in range(seeds) for cell in cells] + [
        Job(*cell, seed=0, before=True) for cell in cells
    ]


def others() -> list[Job]:
    """Batches of 32 and 1000, each with about as many steps, and the smallest rate."""
    jobs = []
    for loss in LOSSES:
        for network in ("conv", "mlp"):
            jobs.append(Job(loss, network, "sgd 0.1 0.9", seed=0, batch=32, epochs=20))
            jobs.append(Job(loss, network, "sgd 0.1 0.9", seed=0, batch=1000, epochs=250))
        jobs.append(Job(loss, "mlp", "sgd 0.01 0", seed=0, epochs=100))
    return jobs


def latchings() -> list[Job]:
    """Ways to latch, over three seeds."""
    return [
        Job("vmcr2", "mlp", name, seed=seed, epochs=100, latching=way)
        for way in LATCHING
        for name in ("sgd 0.1 0.9", "adamw")
        for seed in range(3)
    ]


def cell(rows: list[dict[str, Any]]) -> str:
    """Mean (and smallest, over seeds) ΔR, and mean accuracy."""
    values = [row["delta"] for row in rows]
    smallest = f" (≥ {min(values):.2f})" if len(values) > 1 else ""
    accuracy = sum(row["accuracy"] for row in rows) / len(rows)
    return f"{sum(values) / len(values):.2f}{smallest}, {accuracy:.2f}" + (
        " warns" if any(row["warned"] for row in rows) else ""
    )


def main() -> None:
    """Run, save, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    groups = {"battery": battery(arguments.seeds), "other batches and rates": others(), "latching": latchings()}
    found = {name: run_all(train, jobs, arguments.workers) for name, jobs in groups.items()}
    save("loops.json", found)
    for loss, title in LOSSES.items():
        for before in (False, True):
            rows = []
            for network, called in NETWORKS.items():
                of = [r for r in found["battery"] if (r["loss"], r["network"], r["before"]) == (loss, network, before)]
                rows.append([called, *(cell([r for r in of if r["optimiser"] == name]) for name in OPTIMISERS)])
            print(table([f"{title}{', before' if before else ''}", *OPTIMISERS.values()], rows) + "\n")
    rows = [
        [LOSSES[r["loss"]], NETWORKS[r["network"]], r["optimiser"], str(r["batch"]), str(r["epochs"]), cell([r])]
        for r in found["other batches and rates"]
    ]
    print(table(["loss", "network", "optimiser", "batch", "epochs", "ΔR / maximum, accuracy"], rows) + "\n")
    names = ("sgd 0.1 0.9", "adamw")
    rows = []
    for way, called in LATCHING.items():
        of = [r for r in found["latching"] if r["latching"] == way]
        rows.append([called, *(cell([r for r in of if r["optimiser"] == name]) for name in names)])
    print(table(["latching", *(OPTIMISERS[name] for name in names)], rows))


if __name__ == "__main__":
    main()
