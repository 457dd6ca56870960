"""Checkpoints: safetensors files with everything that the next step depends on, the last one and the one before.

The order of samples and the augmentation are functions of seed and epoch, so only dropout's generator has a state.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .._shared import UserError, atomic, write_tensor_file
from ..training import Step
from ._folder import RunFolder
from ._records import DamagedError
from ._tensor_files import read_tensors_with_metadata, tensors_under

_MOST_STEPS = 2**53


class Position(NamedTuple):
    """How far a run is: whole epochs and all steps done, and their seconds of training."""

    epoch: int
    step: int
    seconds: float
    spent: float = 0.0
    """Of these, the seconds of an epoch that is not done yet."""
    stopped_by: str = ""
    """What ended the run before its last epoch, if something did: "patience" or "callback"."""


def save_checkpoint(folder: RunFolder, step: Step, position: Position) -> None:
    """Write the state after a step, once: it is the same in all processes of a run. The one before is kept."""
    if not step.ranks.leads:
        return
    tensors = weights_of(step)
    for index, parameter in enumerate(step.parameters):  # not by the optimiser's groups: decay_all decides those
        for name, value in step.optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
    tensors["random.cpu"] = torch.get_rng_state()
    if step.index.is_cuda:
        tensors["random.cuda"] = torch.cuda.get_rng_state(step.index.device)
    with atomic(folder.checkpoint, durable=True) as temporary:
        write_tensor_file(temporary, tensors, {"position": json.dumps(position._asdict())})
        _keep_one_before(folder)  # not earlier: if the disk is full, both stay as they are


def _keep_one_before(folder: RunFolder) -> None:
    """Give the last checkpoint a second name, which it keeps when the next replaces it: nothing is copied."""
    if not folder.checkpoint.exists():
        return
    link = folder.checkpoint_before.with_name(f".{folder.checkpoint_before.name}.{os.getpid()}.tmp")
    try:
        link.unlink(missing_ok=True)
        os.link(folder.checkpoint, link)
        os.replace(link, folder.checkpoint_before)
        link.unlink(missing_ok=True)  # where both names are of one file, a replace leaves both
    except OSError:  # a file system without second names: for a moment there is only the one before
        os.replace(folder.checkpoint, folder.checkpoint_before)


def has_checkpoint(folder: RunFolder) -> bool:
    """Whether a run has something to go on from."""
    return bool(_kept(folder))


def find_checkpoint(folder: RunFolder) -> Path | None:
    """The newest checkpoint that is whole; None if there is none at all.

    If there are some, and all are damaged, that is a :class:`DamagedError`.
    """
    found = _newest(folder, lambda _: None)
    return None if found is None else found[0]


def load_checkpoint(folder: RunFolder, step: Step, note: Callable[[str], None]) -> Position:
    """Restore the state, in all processes of the run: rank 0 reads the file.

    If the last checkpoint is damaged, it is that before; ``note`` is told. Without any, the run starts at its first
    epoch.
    """
    found = step.ranks.from_first(lambda: _newest(folder, note))
    if found is None:
        return Position(0, 0, 0.0)
    path, tensors, metadata = found
    try:
        _restore(path, tensors, step)
        return _position(path, metadata)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        why = str(error).strip().splitlines()[0]
        raise UserError(f"{path} does not fit the settings of its run: {why}") from error


def _restore(path: Path, tensors: dict[str, Tensor], step: Step) -> None:
    load_weights(path, tensors, step)
    for index, parameter in enumerate(step.parameters):
        values = tensors_under(f"optimizer.{index}.", tensors)
        if values:
            step.optimizer.state[parameter] = {name: _beside(parameter, value) for name, value in values.items()}
    torch.set_rng_state(tensors["random.cpu"])
    if step.index.is_cuda and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], step.index.device)


def _newest(folder: RunFolder, note: Callable[[str], None]) -> tuple[Path, dict[str, Tensor], dict[str, str]] | None:
    """The newest whole checkpoint: where it is, and what is in it."""
    damaged: list[str] = []
    for path in _kept(folder):
        try:
            tensors, metadata = read_tensors_with_metadata(path)
            position = _position(path, metadata)
        except UserError as error:
            damaged.append(str(error))
            continue
        if damaged:
            note(f"{damaged[0]}. The checkpoint before it is used, of epoch {position.epoch}")
        return path, tensors, metadata
    if damaged:
        raise DamagedError(
            f"{'; '.join(damaged)}. There is no whole checkpoint: remove {folder.checkpoint.parent}, and --resume "
            "starts again from the first epoch"
        )
    return None


def _kept(folder: RunFolder) -> list[Path]:
    """The checkpoints, newest first."""
    return [path for path in (folder.checkpoint, folder.checkpoint_before) if path.exists()]


def weights_of(step: Step) -> dict[str, Tensor]:
    """What was learned so far: the network, the objective's state, and the weights' mean where one is kept."""
    tensors = {f"model.{name}": value for name, value in step.network.state_dict().items()}
    tensors |= {f"objective.{name}": value for name, value in step.objective.module.state_dict().items()}
    if step.average is not None:
        tensors |= {f"average.{name}": value for name, value in step.average.state_dict().items()}
    return tensors


def load_weights(path: Path, tensors: dict[str, Tensor], step: Step) -> None:
    """Back from :func:`weights_of`; ``path`` is where they were read, for an error."""
    step.network.load_state_dict(tensors_under("model.", tensors))
    step.objective.module.load_state_dict(tensors_under("objective.", tensors))
    if step.average is not None:
        if "average.steps" not in tensors:
            raise UserError(f"{path} has no averaged weights: it belongs to a run with average 0")
        step.average.load_state_dict(tensors_under("average.", tensors))


def read_position(path: Path) -> Position:
    """How far the run was when the checkpoint was written."""
    return _position(path, read_tensors_with_metadata(path)[1])


def _position(path: Path, metadata: dict[str, str]) -> Position:
    try:
        position = Position(**json.loads(metadata["position"]))
        counts = (position.epoch, position.step)
        if not all(isinstance(count, int) and 0 <= count < _MOST_STEPS for count in counts):
            raise ValueError(f"epoch {position.epoch}, step {position.step}")
        for seconds in (position.seconds, position.spent):
            if not (isinstance(seconds, int | float) and math.isfinite(seconds)):
                raise ValueError(f"{seconds} seconds")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is not a checkpoint of this version of vmcr2") from error
    return position


def _beside(parameter: Tensor, value: Tensor) -> Tensor:
    """A value for the optimiser. A momentum gets the memory layout of its parameter.

    A fused optimiser walks through both in one order, and on a GPU the weights of convolutions have another layout.
    """
    if value.shape != parameter.shape:  # a counter of steps
        return value.to(parameter.device)
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)
