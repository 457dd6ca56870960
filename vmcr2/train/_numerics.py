"""Where a network runs and in what precision, and how that is decided."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from .._shared import UserError
from ._config import Config


def choose_device(name: str) -> torch.device:
    """``auto`` is cuda where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise UserError(f"device takes auto, cpu or cuda, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device cuda was asked for, but torch sees no CUDA device: use --device cpu")
    return torch.device(name)


def forked_random(device: torch.device) -> AbstractContextManager[None]:
    """Torch's random numbers inside are the run's; the caller's own go on after it.

    Of every GPU: a seed is set on all of them, wherever the run is.
    """
    used = device.type == "cuda" or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return cast(AbstractContextManager[None], torch.random.fork_rng(range(torch.cuda.device_count() if used else 0)))


def uses_bfloat16(config: Config, device: torch.device) -> bool:
    """``auto`` is bfloat16 on a GPU that has it, float32 elsewhere."""
    if config.precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return config.precision == "bfloat16"


@contextmanager
def numerics(config: Config, device: torch.device, *, search: bool = False) -> Iterator[None]:
    """The network under bfloat16 autocast if so decided; torch's switches are put back afterwards.

    Objectives leave autocast and TF32 for themselves, except in products that nothing is inverted of. Casts of weights
    are not cached: a cache filled while a graph is captured would outlive it. ``search`` lets cuDNN try out its
    algorithms, some seconds at the start.
    """
    low = uses_bfloat16(config, device)
    before = torch.get_float32_matmul_precision()
    exact = torch.are_deterministic_algorithms_enabled()
    torch.set_float32_matmul_precision("high" if low else "highest")
    try:
        with (
            torch.backends.cudnn.flags(
                enabled=True, benchmark=search and not exact, deterministic=exact, allow_tf32=low and not exact
            ),
            torch.autocast(device.type, torch.bfloat16, enabled=low, cache_enabled=False),
        ):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def arranged(x: Tensor, config: Config) -> Tensor:
    """Images in the precision of the network: cast once, and not in every layer that asks for it."""
    return x.to(torch.bfloat16) if uses_bfloat16(config, x.device) else x


def placed(network: nn.Module, device: torch.device) -> nn.Module:
    """The network on its device; convolutions channels last on a GPU."""
    network = network.to(device)
    if device.type == "cuda":
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network
