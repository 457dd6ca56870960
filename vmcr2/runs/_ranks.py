"""A run that several processes train: what only one of them says, and what they say when one is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from .._shared import UserError
from ..distributed import Ranks, losses_as
from ..training import Capture, TrainingError
from ._callbacks import Callback
from ._checkpoint import find_checkpoint, read_position
from ._config import Config
from ._folder import RunFolder

_SEEN_SECONDS = 60.0
"""A disk that machines share may show a new file later to the others."""


class Silence(Callback):
    """What a process other than rank 0 has for callbacks: it takes notes, and says nothing."""

    def note(self, text: str) -> None:
        """Rank 0 has it too."""


def noticing_losses(ranks: Ranks, folder: RunFolder) -> AbstractContextManager[None]:
    """If another process ends in the middle of a run, say so, and how the run goes on: a :class:`TrainingError`."""
    return losses_as(
        TrainingError,
        ranks.count,
        lambda: (
            f"another of the {ranks.count} processes has ended; its own message, or torchrun's, says why. "
            f"{_how_to_go_on(folder)}"
        ),
    )


def _how_to_go_on(folder: RunFolder) -> str:
    if (checkpoint := find_checkpoint(folder)) is None:
        return f"{folder.path} has no checkpoint yet: the same command with --resume starts it again"
    epoch = read_position(checkpoint).epoch
    return (
        f"The last checkpoint is after epoch {epoch}: `torchrun … -m vmcr2 train --resume --out {folder.path}` "
        "continues, under any number of processes"
    )


def check_seen(folder: RunFolder) -> None:
    """Before a run of several processes starts: each reads in its folder at the end, also on another machine."""
    deadline = time.monotonic() + _SEEN_SECONDS
    while not folder.config.exists():
        if time.monotonic() >= deadline:
            raise UserError(
                f"this process does not see {folder.path.absolute()}, the run folder of rank 0: choose an --out on a "
                "disk that all machines share"
            )
        time.sleep(0.1)


def check_batch(ranks: Ranks, batch_size: int) -> None:
    """Fewer rows than processes are a :class:`UserError`."""
    if batch_size < ranks.count:
        raise UserError(
            f"a batch has {batch_size} rows, but there are {ranks.count} processes: raise batch_size, or start fewer"
        )


def fast_way(config: Config, ranks: Ranks, device: torch.device, say: Callable[[str], None]) -> tuple[Capture, bool]:
    """How a run captures its steps, and whether it compiles the network."""
    run = config.run
    compiled = run.compile == "yes" and ranks.count == 1
    if run.compile == "yes" and not compiled:
        say("compile is yes, but a network that several processes compute is not compiled: continuing without")
    if device.type == "cuda" and not ranks.can_capture(device):
        if run.engine == "captured":
            raise UserError("engine captured needs nccl, one process for each GPU: use engine auto or fewer processes")
        say("processes share a GPU, so they exchange by gloo, which no CUDA graph can hold: steps run eagerly, slower")
        return "eager", compiled
    return run.engine, compiled
