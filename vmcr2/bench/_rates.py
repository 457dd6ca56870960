"""How fast the device is, measured in the same run: matrix products, and copies within its memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ._measure import Job, interleaved_seconds, summary
from ._work import Work

_SIDE = {"cuda": 8192, "cpu": 2048}
_COPY_FLOATS = {"cuda": 2**28, "cpu": 2**26}


def measured_rates(device: torch.device) -> dict[str, Any]:
    """Rates of square products (float32, and on CUDA TF32 and bfloat16) in FLOP/s, and of a copy in bytes/s."""
    n = _SIDE[device.type]
    jobs: dict[str, Job] = {"float32": _product(n, torch.float32, device, "highest")}
    if device.type == "cuda":
        jobs["tf32"] = _product(n, torch.float32, device, "high")
        jobs["bfloat16"] = _product(n, torch.bfloat16, device, "highest")
    source = torch.zeros(_COPY_FLOATS[device.type], device=device)
    target = torch.empty_like(source)
    jobs["copy"] = lambda: target.copy_(source)
    seconds = interleaved_seconds(jobs, budget=0.2, least=5, device=device)
    median = {name: summary(runs)["median_ms"] / 1e3 for name, runs in seconds.items()}
    flops = {f"{name}_flops": 2 * n**3 / time for name, time in median.items() if name != "copy"}
    return {"side": n, **flops, "copy_bytes": 2 * source.numel() * source.element_size() / median["copy"]}


def shares(work: Work, milliseconds: float, rates: dict[str, Any]) -> dict[str, float]:
    """Which part of the float32 product rate and of the copy rate a piece of work reaches in this time."""
    seconds = milliseconds / 1e3
    return {
        "flops": work.flops,
        "bytes": work.bytes,
        "share_of_products": work.flops / seconds / rates["float32_flops"],
        "share_of_bandwidth": work.bytes / seconds / rates["copy_bytes"],
    }


def rates_line(rates: dict[str, Any]) -> str:
    """The rates in one line, for the top of a table."""
    names = {"float32_flops": "float32", "tf32_flops": "TF32", "bfloat16_flops": "bfloat16"}
    shown = [f"{label} {rates[name] / 1e12:.3g}" for name, label in names.items() if name in rates]
    return (
        f"Measured in the same run: products of {rates['side']}³ at {', '.join(shown)} TFLOP/s; "
        f"copies at {rates['copy_bytes'] / 1e9:.4g} GB/s (read + write)."
    )


def _product(n: int, dtype: torch.dtype, device: torch.device, precision: str) -> Job:
    a, b = (torch.ones(n, n, dtype=dtype, device=device) for _ in range(2))
    out = torch.empty_like(a)

    def job() -> Tensor:
        with _precision(precision):
            return torch.mm(a, b, out=out)

    return job


@contextmanager
def _precision(wanted: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(wanted)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
