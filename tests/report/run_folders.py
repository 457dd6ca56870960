"""Run folders made by hand: any number of classes and epochs, whole or broken, in a moment."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from vmcr2.runs import RECIPES, Config

OLD = ("codes", "smallest_angles", "mean_angles", "train_sizes")
"""what folders did not hold at first"""

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "$x_1^",
    "a & b",
    "«q» \"'",
    "{{ 7*7 }}",
]


def write_run(
    path: Path,
    *,
    recipe: str = "cifar100-vmcr2",
    classes: int = 10,
    epochs: int = 20,
    done: int | None = None,
    seed: int = 0,
    holdout: int = 0,
    names: list[str] | None = None,
    picture: tuple[int, int, int] = (3, 32, 32),
    dim: int = 60,
    old: bool = False,
    smooth: bool = False,
    every: int | None = None,
    warning: str | None = None,
    **changes: Any,
) -> Path:
    """A finished run, or one that stopped after ``done`` epochs; ``old`` has no angles and no codes yet."""
    make = RECIPES.get(recipe)
    config = (make().config if make else Config().replace(recipe=recipe)).replace(
        epochs=epochs, seed=seed, holdout=holdout, dim=dim, **changes
    )
    path.mkdir(parents=True)
    (path / "config.json").write_text(config.to_json())
    (path / "manifest.json").write_text(json.dumps(manifest(config, path)))
    rng = np.random.default_rng(seed)
    last = epochs if done is None else done
    lines = [line(config, epoch, rng, every or max(1, epochs // 20)) for epoch in range(1, last + 1)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    if done is not None and done < epochs:
        return path
    tensors = evaluation(config, classes, rng, picture, smooth)
    if old:
        tensors = {name: value for name, value in tensors.items() if name not in OLD}
    metadata = {"class_names": json.dumps(names)} if names else None
    save_file(tensors, path / "evaluation.safetensors", metadata)
    figures = summary(config, tensors["confusion"], rng) | ({"warning": warning} if warning else {})
    if old:
        del figures["readout"]
    (path / "summary.json").write_text(json.dumps(figures))
    return path


def manifest(config: Config, path: Path) -> dict[str, Any]:
    return {
        "format": 1,
        "vmcr2": "0.1.0",
        "python": "3.12.1",
        "torch": "2.11.0+cu130",
        "device": "NVIDIA H200",
        "machine": "Linux-6.1-x86_64",
        "cores": 16,
        "threads": 16,
        "git_commit": "0123456789abcdef",
        "command": f"/usr/bin/vmcr2 train {config.recipe} --seed {config.run.seed} --out {path.name}",
        "started": "2026-11-15T12:00:00+00:00",
        "seed": config.run.seed,
        "recipe": RECIPES[config.recipe]().config.acting(),
        "data": {"name": config.data.name, "train_checksum": "ab" * 32, "path": None},
    }


def line(config: Config, epoch: int, rng: np.random.Generator, every: int) -> dict[str, Any]:
    """Curves of a plausible shape, with a dip after every latching."""
    part = 1 - math.exp(-5 * epoch / config.optim.epochs)
    most = config.model.dim / 2 * math.log(3)
    noise = float(rng.normal()) * most / 300
    record: dict[str, Any] = {
        "epoch": epoch,
        "step": 25 * epoch,
        "seconds": 0.14 * epoch,
        "images_per_second": 357_000.0,
        "lr": 0.3 * (1 + math.cos(math.pi * epoch / config.optim.epochs)) / 2,
        "loss": -part,
        "expansion": most * (0.2 + 0.75 * part) + noise,
        "compression": most * (0.4 - 0.25 * part),
    }
    record["batch_delta_r"] = record["expansion"] - record["compression"]
    if "vmcr2" in config.objective.name:
        dip = 0.6 if epoch % config.flat()["latch_every"] == 0 else 1.0
        record["variational_expansion"] = most * (1 + part) * dip
        record["variational_compression"] = most * 0.4 * dip
        record["mismatch"] = 10 ** (5 + part) * dip**6
        record["codes_trace"] = 1 + 7 * part
    if epoch % every == 0 and epoch < config.optim.epochs:
        record["train_delta_r"] = 0.9 * record["batch_delta_r"]
        if config.data.holdout:
            record["holdout_accuracy"] = 0.55 * part + 0.005 * float(rng.normal())
    return record


def evaluation(
    config: Config, k: int, rng: np.random.Generator, picture: tuple[int, int, int], smooth: bool
) -> dict[str, NDArray[Any]]:
    """Classes on random subspaces of ⌊d/k⌋ dimensions, with noise; neighbours in number overlap a little."""
    d, r, per_class = config.model.dim, max(1, config.model.dim // k), 30
    frame = np.linalg.qr(rng.normal(size=(d, d)))[0] if k * r <= d else rng.normal(size=(d, k * r)) / d**0.5
    bases = frame.T[: k * r].reshape(k, r, d)
    bases = bases + 0.3 * np.roll(bases, 1, axis=0) * (np.arange(k) % 3 == 0)[:, None, None]
    labels = np.repeat(np.arange(k), per_class)
    z = np.einsum("nr,nrd->nd", rng.normal(size=(len(labels), r)) / r**0.5, bases[labels])
    z += 0.3 * rng.normal(size=z.shape) / d**0.5
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    orthonormal = np.stack([np.linalg.qr(basis.T)[0] for basis in bases])
    cosines = np.linalg.svd(np.einsum("idr,jds->ijrs", orthonormal, orthonormal), compute_uv=False).clip(0, 1)
    falling = np.exp(-np.maximum(np.arange(30) - r, 0) * 0.7) * np.exp(rng.normal(size=(k, 1)) * 0.1)
    s = config.flat().get("atoms_per_class", 1)
    codes = rng.random((k, k, s)) * 0.002 + np.eye(k)[:, :, None] * rng.random((k, k, s))
    tensors = {
        "features": z.astype(np.float16),
        "labels": labels,
        "unseen_features": z.astype(np.float16),
        "unseen_labels": labels,
        "spectra": (falling / falling.sum(1, keepdims=True)).astype(np.float32),
        "effective_ranks": np.full(k, r * 1.1, np.float32),
        "train_sizes": np.full(k, 50_000 // k, np.int32),
        "confusion": confusion(k, rng),
        "smallest_angles": np.arccos(cosines[..., 0]).astype(np.float16),
        "mean_angles": np.arccos(cosines).mean(-1).astype(np.float16),
        "nearest_pictures": pictures((k, 8, *picture), rng, smooth),
        "nearest_index": np.zeros((k, 8), np.int64),
        "worst_pictures": pictures((32, *picture), rng, smooth),
        "worst_labels": np.arange(32) % k,
        "worst_predicted": (np.arange(32) + 1) % k,
    }
    if "vmcr2" in config.objective.name:
        tensors["codes"] = codes.reshape(k, k * s).T.astype(np.float16)
    return {name: np.ascontiguousarray(value) for name, value in tensors.items()}


def confusion(k: int, rng: np.random.Generator) -> NDArray[Any]:
    """A hundred images a class, six in ten right, and the mistakes mostly among neighbours in number."""
    table = np.zeros((k, k), np.int32)
    for i in range(k):
        taken = np.where(rng.random(100) < 0.6, i, (i + rng.geometric(0.15, 100)) % k)
        np.add.at(table[i], taken, 1)
    return table


def pictures(shape: tuple[int, ...], rng: np.random.Generator, smooth: bool) -> NDArray[Any]:
    """Noise, the hardest to compress; or waves, to look at."""
    if not smooth:
        return rng.integers(0, 256, shape, dtype=np.uint8)
    *lead, channels, height, width = shape
    y, x = np.mgrid[0:height, 0:width] / height
    phase = rng.random((*lead, channels, 1, 1)) * 6.3
    turn = rng.normal(size=(*lead, 1, 1, 1)) * 5
    waves = np.sin(turn * x + np.roll(turn, 1, axis=0) * y + phase)
    return np.asarray(127 + 90 * waves + rng.normal(size=shape) * 12).clip(0, 255).astype(np.uint8)


def summary(config: Config, table: NDArray[Any], rng: np.random.Generator) -> dict[str, Any]:
    unseen = "holdout" if config.data.holdout else "test"
    right = float(np.trace(table) / table.sum())
    figures: dict[str, Any] = {
        f"{unseen}_accuracy": right,
        f"{unseen}_class_mean_accuracy": right - 0.01,
        f"{unseen}_neighbours_accuracy": right - 0.02,
        "train_delta_r": 0.7 * config.model.dim / 2 + float(rng.random()),
        "expansion": 0.9 * config.model.dim / 2,
        "compression": 0.2 * config.model.dim / 2,
        "batch_delta_r": 0.8 * config.model.dim / 2 + float(rng.random()),
        "within_cosine": 0.41,
        "between_cosine": 0.02,
        "subspace_overlap": 0.003,
        "effective_rank": 8.7,
        "train_accuracy": 0.9,
        "epochs": config.optim.epochs,
        "seconds": 0.14 * config.optim.epochs,
        "train_images": 50_000 - config.data.holdout,
        f"{unseen}_images": int(table.sum()),
        "parameters": 11_700_000,
    }
    if config.objective.name.startswith("ce"):
        figures["head_accuracy"] = right + 0.015
    figures["readout"] = "head" if "head_accuracy" in figures else "subspace"
    return figures


def settings(path: Path) -> dict[str, Any]:
    """The configuration that was written."""
    return Config.from_json((path / "config.json").read_text()).flat()
