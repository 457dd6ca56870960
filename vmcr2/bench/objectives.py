"""Forward and backward of every way to write the objectives, in one process on the CPU: ratios and peak memory."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functional import Backend, rate_reduction
from ..losses import VMCR2Loss
from ._measure import Job, environment, interleaved_seconds, peak_bytes, summary
from ._textbook import dense_variational_step

EXACT_LOOP = "exact, class loop of torch.logdet"
EXACT_COVARIANCE = "exact, d×d per class"
EXACT_AUTO = "exact, as shipped (auto)"
DENSE_STEP = "V-MCR² step, d×d per class"
STEP = "V-MCR² step, as shipped"
STEP_EXPANSION = "V-MCR² step, with R(z)"


class Size(NamedTuple):
    """One row of the table; q = atoms · k."""

    data: str
    m: int
    d: int
    k: int
    atoms: int


SIZES = [
    Size("MNIST, CIFAR-10", 1000, 128, 10, 20),
    Size("CIFAR-100", 2000, 500, 100, 10),
    Size("Tiny ImageNet", 2000, 500, 200, 10),
]


def jobs_for(size: Size, seed: int = 0) -> dict[str, Job]:
    """Forward + backward of every contender on the same features and labels."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.nn.functional.normalize(torch.randn(size.m, size.d, generator=generator), dim=1)
    labels = torch.randint(0, size.k, (size.m,), generator=generator)

    def exact(backend: Backend) -> Job:
        return lambda: _backward(lambda z: -rate_reduction(z, labels, size.k, backend=backend).delta, features)

    def shipped(batch_expansion: float) -> Job:
        loss = VMCR2Loss(size.k, size.d, atoms_per_class=size.atoms, batch_expansion=batch_expansion)
        loss.latch(features, labels)
        return lambda: _backward(lambda z: loss(z, labels), features)

    start = VMCR2Loss(size.k, size.d, atoms_per_class=size.atoms)
    start.latch(features, labels)

    def dense(z: Tensor) -> Tensor:
        return dense_variational_step(z, labels, start.dictionary, start.codes, eps_sq=0.5, weight=20.0, nu=5.0)[0]

    return {
        EXACT_LOOP: exact("loop"),
        EXACT_COVARIANCE: exact("covariance"),
        EXACT_AUTO: exact("auto"),
        DENSE_STEP: lambda: _backward(dense, features),
        STEP: shipped(0.0),
        STEP_EXPANSION: shipped(0.1),
    }


def _backward(loss: Callable[[Tensor], Tensor], features: Tensor) -> None:
    z = features.clone().requires_grad_()
    torch.autograd.backward(loss(z))


def measure(size: Size, budget: float) -> dict[str, Any]:
    """One size: milliseconds, peak memory, and the ratios that the claims are about."""
    jobs = jobs_for(size)
    seconds = interleaved_seconds(jobs, budget=budget)
    rows = {name: summary(seconds[name]) | {"peak_mib": peak_bytes(job) / 2**20} for name, job in jobs.items()}
    median = {name: row["median_ms"] for name, row in rows.items()}
    ratios = {
        "exact: class loop / auto": median[EXACT_LOOP] / median[EXACT_AUTO],
        "exact: d×d / auto": median[EXACT_COVARIANCE] / median[EXACT_AUTO],
        "V-MCR²: d×d / as shipped": median[DENSE_STEP] / median[STEP],
        "V-MCR² as shipped / exact auto": median[STEP] / median[EXACT_AUTO],
        "V-MCR² with R(z) / exact auto": median[STEP_EXPANSION] / median[EXACT_AUTO],
    }
    return {"size": size._asdict(), "contenders": rows, "ratios": ratios}


def table(results: list[dict[str, Any]]) -> str:
    """The figures as Markdown."""
    lines = ["| m, d, k, q | contender | median ms (quartiles) | peak MiB |", "|---|---|---|---|"]
    for result in results:
        size = Size(**result["size"])
        for name, row in result["contenders"].items():
            spread = f"{row['median_ms']:.1f} ({row['lower_quartile_ms']:.1f}–{row['upper_quartile_ms']:.1f})"
            lines.append(
                f"| {size.m}, {size.d}, {size.k}, {size.atoms * size.k} | {name} | {spread} | {row['peak_mib']:.0f} |"
            )
    lines += ["", "| ratio | " + " | ".join(result["size"]["data"] for result in results) + " |"]
    lines.append("|---" * (len(results) + 1) + "|")
    for name in results[0]["ratios"]:
        lines.append(f"| {name} | " + " | ".join(f"{result['ratios'][name]:.1f}" for result in results) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Print the tables, and write the raw figures where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw figures here")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=6.0, metavar="SECONDS", help="per contender and size")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    results = [measure(size, options.budget) for size in SIZES]
    print(table(results))
    if options.json:
        record = {"environment": environment(), "results": results}
        options.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
