"""Where a network runs and in what precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from .._shared import UserError

Precision = Literal["auto", "float32", "bfloat16"]


def choose_device(name: str) -> torch.device:
    """``auto`` is cuda where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise UserError(f"device takes auto, cpu or cuda, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device is cuda, but torch sees no CUDA device: use --device cpu")
    return torch.device(name)


def forked_random(device: torch.device) -> AbstractContextManager[None]:
    """Inside, torch's random numbers are the run's; afterwards the caller's own go on.

    Of every GPU: a seed is set on all of them, wherever the run is.
    """
    used = device.type == "cuda" or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return cast(AbstractContextManager[None], torch.random.fork_rng(range(torch.cuda.device_count() if used else 0)))


@dataclass(frozen=True)
class Numerics:
    """A device, and whether the network computes in bfloat16 there. Objectives always stay in float32."""

    device: torch.device
    bfloat16: bool = False

    @classmethod
    def choose(cls, device: torch.device, precision: Precision) -> Numerics:
        """``auto`` is bfloat16 on a GPU that has it, float32 elsewhere."""
        if precision == "auto":
            return cls(device, device.type == "cuda" and torch.cuda.is_bf16_supported())
        return cls(device, precision == "bfloat16")

    @contextmanager
    def applied(self, *, search: bool = False) -> Iterator[None]:
        """The network under autocast if so decided. Torch's own switches are restored on exit.

        Objectives switch autocast and TF32 off for themselves, except in products that nothing is inverted of. Casts
        of weights are not cached: a cache filled while a graph is captured would outlive it. ``search`` lets cuDNN try
        its algorithms, which takes some seconds at the start.
        """
        before = torch.get_float32_matmul_precision()
        exact = torch.are_deterministic_algorithms_enabled()
        torch.set_float32_matmul_precision("high" if self.bfloat16 else "highest")
        try:
            with (
                torch.backends.cudnn.flags(
                    enabled=True,
                    benchmark=search and not exact,
                    deterministic=exact,
                    allow_tf32=self.bfloat16 and not exact,
                ),
                torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16, cache_enabled=False),
            ):
                yield
        finally:
            torch.set_float32_matmul_precision(before)

    def cast(self, x: Tensor) -> Tensor:
        """Inputs in the network's precision: cast once, and not in every layer that asks for it."""
        return x.to(torch.bfloat16) if self.bfloat16 else x

    def place(self, network: nn.Module) -> nn.Module:
        """The network on the device; convolutions channels last, which is faster on a GPU and on a CPU."""
        placed: nn.Module = network.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return placed
