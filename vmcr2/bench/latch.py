"""Latching (Algorithm 2) on whole training sets: time, memory, and `eigh` beside it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional import latch
from ._measure import (
    Say,
    caption,
    environment,
    figure,
    interleaved_seconds,
    once,
    peak_bytes,
    sentence,
    silent,
    summary,
)

LATCH = "latch"

_SPREAD = 4
"""Directions in which a class of the synthetic features mostly lies."""


class LatchSize(NamedTuple):
    """One row of the table."""

    samples: int
    d: int
    k: int
    atoms: int
    with_eigh: bool = False


SIZES = {
    "cuda": [
        LatchSize(50_000, 500, 100, 10, with_eigh=True),
        LatchSize(100_000, 500, 200, 10),
        LatchSize(100_000, 1024, 1000, 4),
    ],
    "cpu": [
        LatchSize(25_000, 500, 100, 10, with_eigh=True),
        LatchSize(50_000, 500, 200, 10),
        LatchSize(10_000, 1024, 1000, 4),
    ],
}


def features_for(size: LatchSize, device: torch.device, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Unit features, each class mostly in a few directions of its own as after training, and their labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, size.k, (size.samples,), generator=generator).to(device)
    directions = torch.randn(_SPREAD, size.k, size.d, generator=generator).to(device)
    parts = torch.randn(_SPREAD, size.samples, 1, generator=generator).to(device)
    z = 0.3 * torch.randn(size.samples, size.d, generator=generator).to(device)
    for direction, part in zip(directions, parts, strict=True):
        z.addcmul_(direction[labels], part)
    return torch.nn.functional.normalize(z, dim=1), labels


def measure(size: LatchSize, device: torch.device, least: int) -> dict[str, Any]:
    """One size: latching, and `eigh` once, ``with_eigh``."""
    result: dict[str, Any] = {"size": size._asdict()}
    try:
        z, labels = features_for(size, device)

        def latching(method: Any = "subspace") -> tuple[Tensor, Tensor]:
            return latch(z, labels, size.k, atoms_per_class=size.atoms, method=method, validate=False)

        result["peak_mib"] = peak_bytes(latching, device) / 2**20
        runs = interleaved_seconds({LATCH: latching}, budget=0.0, least=least, device=device)
        result[LATCH] = summary(runs[LATCH])
        if size.with_eigh:
            result |= _against_eigh(latching, device)
    except RuntimeError as error:  # out of memory: continue with the other sizes
        return {"size": size._asdict(), "failed": sentence(error)}
    return result


def _against_eigh(latching: Any, device: torch.device) -> dict[str, Any]:
    """`eigh`, timed once after its first call, and the part of its energy that the atoms of `latch` have."""
    _, codes = latching()
    _, exact = latching("eigh")
    return {
        "eigh_ms": 1e3 * once(lambda: latching("eigh"), device),
        "energy_of_eigh": (codes.sum() / exact.sum()).item(),
    }


def run(
    device: torch.device, *, least: int = 7, sizes: list[LatchSize] | None = None, say: Say = silent
) -> dict[str, Any]:
    """Everything that `vmcr2 bench latch` measures."""
    results = []
    for size in sizes or SIZES[device.type]:
        say(f"{size.samples} samples, d {size.d}, {size.k} classes")
        results.append(measure(size, device, least))
    return {"benchmark": "latch", "environment": environment(device), "results": results}


def table(record: dict[str, Any]) -> str:
    """The figures as Markdown, as benchmarks/README.md holds them."""
    headings = ["N, d, k, atoms per class", "latch, ms (quartiles)", "peak MiB", "`eigh`, ms (energy found)"]
    lines = [caption(record["environment"]) + ".", ""]
    lines += ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    for result in record["results"]:
        size = LatchSize(**result["size"])
        cells = [f"{size.samples}, {size.d}, {size.k}, {size.atoms}", *_cells(result)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cells(result: dict[str, Any]) -> list[str]:
    if "failed" in result:
        return [f"failed: {result['failed']}", "–", "–"]
    eigh = f"{result['eigh_ms']:.0f} ({100 * result['energy_of_eigh']:.2f} %)" if "eigh_ms" in result else "–"
    return [figure(result[LATCH]), f"{result['peak_mib']:.0f}", eigh]
