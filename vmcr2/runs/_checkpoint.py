"""Checkpoints: one safetensors file, replaced atomically, with everything that the next step depends on.

The order of samples and the augmentation are functions of seed and epoch, so only dropout's generator has a state.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .._shared import UserError
from ..training import Step
from ._folder import opened_tensors, read_tensors_with_metadata, tensors_under, write_tensors


class Position(NamedTuple):
    """How far a run is: whole epochs and all steps done, and their seconds of training."""

    epoch: int
    step: int
    seconds: float
    spent: float = 0.0
    """Of these, the seconds of an epoch that is not done yet."""
    stopped_by: str = ""
    """What ended the run before its last epoch, if something did: "patience" or "callback"."""


def save_checkpoint(path: Path, step: Step, position: Position) -> None:
    """Write the state after a step, once: it is the same in all processes of a run."""
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
    write_tensors(path, tensors, {"position": json.dumps(position._asdict())})


def load_checkpoint(path: Path, step: Step) -> Position:
    """Restore the state, in all processes of the run: rank 0 reads the file."""
    tensors, metadata = step.ranks.from_first(lambda: read_tensors_with_metadata(path))
    load_weights(path, tensors, step)
    for index, parameter in enumerate(step.parameters):
        values = tensors_under(f"optimizer.{index}.", tensors)
        if values:
            step.optimizer.state[parameter] = {name: _beside(parameter, value) for name, value in values.items()}
    torch.set_rng_state(tensors["random.cpu"])
    if step.index.is_cuda and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], step.index.device)
    return _position(path, metadata)


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
    with opened_tensors(path) as file:
        return _position(path, file.metadata() or {})


def _position(path: Path, metadata: dict[str, str]) -> Position:
    try:
        return Position(**json.loads(metadata["position"]))
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is not a checkpoint of this version of vmcr2") from error


def _beside(parameter: Tensor, value: Tensor) -> Tensor:
    """A value for the optimiser. A momentum gets the memory layout of its parameter.

    A fused optimiser walks through both in one order, and on a GPU the weights of convolutions have another layout.
    """
    if value.shape != parameter.shape:  # a counter of steps
        return value.to(parameter.device)
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)
