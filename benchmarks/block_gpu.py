"""The captured step of VMCR2Loss(block=True) at 1,000 to 100,000 classes, on a GPU.

    python benchmarks/block_gpu.py --json benchmarks/results/block-h200.json      # from the repository root

d 512, 4 atoms per class, batch 4096 with 8 samples of each of 512 classes. Prints milliseconds of a replay (median of
five rounds of 100, with other labels and features in each), of its look-ahead alone, of an exact refresh and of a
latching on 8 samples of each class, the peak of memory, and the ratio of the steps.

One H200, torch 2.11.0+cu130, 2026-11-18: 1.132 ms at 1,000, 10,000 and 100,000 classes; ratio 1.00; at most 1,138 MiB.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vmcr2 import VMCR2Loss

DIM, ATOMS, ROWS, EACH = 512, 4, 4096, 8
CLASSES = ROWS // EACH
CUDA = torch.device("cuda")


def batch(num_classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Unit rows, 8 of each of 512 classes."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(num_classes, generator=generator)[:CLASSES]
    z = torch.nn.functional.normalize(torch.randn(ROWS, DIM, generator=generator), dim=1)
    return z.to(CUDA), chosen.repeat_interleave(EACH).to(CUDA)


def timed(call: Callable[[], object], repeats: int) -> float:
    """Milliseconds of one call."""
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / repeats


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """The call as a graph."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def latched(num_classes: int, max_classes: int | None) -> tuple[VMCR2Loss, float]:
    """A loss that knows every class from 8 random samples, and the seconds that this took."""
    fixed: dict[str, Any] = {"validate": False, "self_latch": False, "normalize": False, "max_gradient": None}
    loss = VMCR2Loss(
        num_classes, DIM, atoms_per_class=ATOMS, block=True, max_class_size=EACH, max_classes=max_classes, **fixed
    ).to(CUDA)
    torch.manual_seed(0)
    z = torch.nn.functional.normalize(torch.randn(EACH * num_classes, DIM, device=CUDA), dim=1)
    torch.cuda.synchronize()
    start = time.perf_counter()
    loss.latch(z, torch.arange(EACH * num_classes, device=CUDA) % num_classes)
    torch.cuda.synchronize()
    return loss, time.perf_counter() - start


def measured(num_classes: int, max_classes: int | None) -> dict[str, Any]:
    """One row."""
    torch.cuda.empty_cache()
    loss, latching = latched(num_classes, max_classes)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    z, labels = batch(num_classes, 0)
    z.requires_grad_()

    def step() -> None:
        z.grad = None
        torch.autograd.backward(loss.surrogate(z, labels, loss.look_ahead(labels)))

    graph = captured(step)
    ahead = captured(lambda: loss.look_ahead(labels))
    times = []
    for seed in range(5):
        fresh, fresh_labels = batch(num_classes, seed)
        with torch.no_grad():
            z.copy_(fresh)
            labels.copy_(fresh_labels)
        times.append(timed(graph.replay, 100))
    return {
        "classes": num_classes,
        "max_classes": max_classes,
        "step_ms": statistics.median(times),
        "look_ahead_ms": timed(ahead.replay, 100),
        "refresh_ms": timed(loss.refresh, 3),
        "latch_s": latching,
        "peak_mib": torch.cuda.max_memory_allocated() / 2**20,
        "state_mib": sum(part.numel() * part.element_size() for part in loss.buffers()) / 2**20,
        "fault": bool(loss.fault),
    }


def main() -> None:
    """As the first lines of this file say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    for num_classes, most in ((1000, CLASSES), (10_000, CLASSES), (100_000, CLASSES), (100_000, None)):
        rows.append(measured(num_classes, most))
        print({name: round(value, 3) if isinstance(value, float) else value for name, value in rows[-1].items()})
    ratio = rows[2]["step_ms"] / rows[0]["step_ms"]
    print(f"step at 100,000 classes / step at 1,000: {ratio:.2f}")
    if given.json:
        where = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        sizes = {"d": DIM, "s": ATOMS, "m": ROWS, "samples_per_class": EACH}
        given.json.write_text(json.dumps(where | sizes | {"rows": rows, "ratio": ratio}, indent=1) + "\n")


if __name__ == "__main__":
    main()
