"""Latching (Algorithm 2) on whole training sets: time of the whole and of its parts, memory, and `eigh`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional import OVERSAMPLE, ROUNDS, Guard, Moments, Samples, eigenpair_source, latch, leading_eigenpairs
from . import _work as work
from ._measure import (
    Job,
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
from ._rates import measured_rates, rates_line, shares

LATCH = "latch"
MOMENTS = "moments"
EIGENPAIRS = "eigenpairs"

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


def measure(size: LatchSize, device: torch.device, least: int, rates: dict[str, Any]) -> dict[str, Any]:
    """One size: the whole; its two parts, if second moments are computed first; and `eigh` once, ``with_eigh``."""
    result: dict[str, Any] = {"size": size._asdict()}
    try:
        z, labels = features_for(size, device)

        def latching(method: Any = "subspace") -> tuple[Tensor, Tensor]:
            return latch(z, labels, size.k, atoms_per_class=size.atoms, method=method, validate=False)

        jobs: dict[str, Job] = {LATCH: latching}
        source = _source(z, labels, size)
        if isinstance(source, Moments):
            moments = source
            jobs[MOMENTS] = lambda: _source(z, labels, size)
            jobs[EIGENPAIRS] = lambda: _eigenpairs(moments, size)
        result["peak_mib"] = peak_bytes(latching, device) / 2**20
        for name, runs in interleaved_seconds(jobs, budget=0.0, least=least, device=device).items():
            result[name] = summary(runs)
        total = _work(size, source)
        result |= shares(total, result[LATCH]["median_ms"], rates)
        if size.with_eigh:
            result |= _against_eigh(latching, device)
    except RuntimeError as error:  # out of memory: continue with the other sizes
        return {"size": size._asdict(), "failed": sentence(error)}
    return result


def _source(z: Tensor, labels: Tensor, size: LatchSize) -> Samples | Moments:
    """What `latch` iterates on: second moments if they fit and are faster, otherwise the samples."""
    samples = Samples([(z, labels)], size.k, Guard(validate=False))
    return eigenpair_source(samples, size.samples)


def _eigenpairs(source: Moments, size: LatchSize) -> object:
    return leading_eigenpairs(source, min(size.atoms, size.d), "subspace")


def _work(size: LatchSize, source: Samples | Moments) -> work.Work:
    width = min(size.atoms + OVERSAMPLE, size.d)
    if isinstance(source, Moments):
        iteration = work.eigenpairs_work(size.d, size.k, width, ROUNDS, None)
        return iteration + work.moments_work(size.samples, size.d, size.k)
    if source.few() is not None:
        return work.few_work(size.samples, size.d, size.k, size.atoms)
    return work.eigenpairs_work(size.d, size.k, width, ROUNDS, size.samples)


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
    rates = measured_rates(device)
    results = []
    for size in sizes or SIZES[device.type]:
        say(f"{size.samples} samples, d {size.d}, {size.k} classes")
        results.append(measure(size, device, least, rates))
    return {"benchmark": "latch", "environment": environment(device), "rates": rates, "results": results}


def table(record: dict[str, Any]) -> str:
    """The figures as Markdown, as benchmarks/README.md holds them."""
    headings = [
        *("N, d, k, atoms per class", "latch, ms (quartiles)", "moments, ms", "eigenpairs, ms", "peak MiB"),
        *("of the product rate", "of the bandwidth", "`eigh`, ms (energy found)"),
    ]
    lines = [caption(record["environment"]) + ".", rates_line(record["rates"]), ""]
    lines += ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    for result in record["results"]:
        size = LatchSize(**result["size"])
        cells = [f"{size.samples}, {size.d}, {size.k}, {size.atoms}", *_cells(result)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cells(result: dict[str, Any]) -> list[str]:
    if "failed" in result:
        return [f"failed: {result['failed']}", *["–"] * 6]
    parts = [figure(result[name]) if name in result else "–" for name in (LATCH, MOMENTS, EIGENPAIRS)]
    part = [f"{100 * result[name]:.2g} %" for name in ("share_of_products", "share_of_bandwidth")]
    eigh = f"{result['eigh_ms']:.0f} ({100 * result['energy_of_eigh']:.2f} %)" if "eigh_ms" in result else "–"
    return [*parts, f"{result['peak_mib']:.0f}", *part, eigh]
