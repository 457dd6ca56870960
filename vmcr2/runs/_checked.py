"""Whether the files of a run fit together. A folder may be damaged, or come from a stranger."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._shared import UserError
from ..inference import HEAD, SUBSPACE, Confidence, KeptSamples
from ._config import Config

_LONGEST_SIDE = 100_000


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What a file lacks, or has in another form than its readers know, is one sentence."""
    try:
        yield
    except UserError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error).strip().splitlines()[0:1]
        said = why if isinstance(why, str) else "".join(why)
        raise UserError(f"{path} cannot be used: {said or type(error).__name__}") from error


@contextmanager
def enough_memory() -> Iterator[None]:
    """While something is built by settings: sizes that no machine has are one sentence."""
    try:
        yield
    except (MemoryError, OverflowError) as error:
        raise UserError("these settings need more memory than there is") from error
    except (RuntimeError, TypeError) as error:
        if not re.search("allocate memory|[Oo]verflow", str(error)):
            raise
        raise UserError(f"these settings need more memory than there is: {str(error).splitlines()[0]}") from error


def check_subspaces(path: Path, tensors: Mapping[str, Tensor], dim: int) -> None:
    """``bases`` (k, d, r) and ``energies`` (k, r), finite."""
    bases, energies = (tensors.get(name) for name in ("bases", "energies"))
    whole = bases is not None and bases.ndim == 3 and bases.shape[1] == dim and 0 not in bases.shape
    if bases is None or energies is None or not whole or energies.shape != (bases.shape[0], bases.shape[2]):
        raise UserError(f"{path} does not fit its config.json: it has no subspaces of {dim} features")
    _check_numbers(path, {"bases": bases, "energies": energies})


def check_confidence(path: Path, found: Confidence, config: Config, *, has_head: bool) -> None:
    """Temperatures of every way to predict, and the novelties that they go by."""
    dim = config.model.dim
    for by in (SUBSPACE, HEAD) if has_head else (SUBSPACE,):
        if not 0 < found.temperatures.get(by, 0.0) < float("inf"):
            raise UserError(f"{path} is damaged: it has no temperature of the {by}")
    for by in (SUBSPACE, HEAD) if has_head and not config.objective.separates else (SUBSPACE,):
        novelties = found.novelties.get(by)
        if novelties is None or novelties.ndim != 1:
            raise UserError(f"{path} is damaged: it has no novelties of the {by}")
    _check_numbers(path, found.novelties)
    if found.features is not None:
        if found.features.ndim != 2 or found.features.shape[1] != dim:
            raise UserError(f"{path} does not fit its config.json: its features are not of {dim} numbers")
        _check_numbers(path, {"features": found.features})


def check_kept(path: Path, kept: KeptSamples, dim: int, classes: int) -> None:
    """As many labels, places and pictures as features."""
    count = len(kept.features)
    pictures = kept.pictures
    fits = kept.features.ndim == 2 and kept.features.shape[1] == dim and kept.features.is_floating_point()
    fits = fits and kept.labels.shape == kept.index.shape == (count,)
    fits = fits and (pictures is None or (pictures.ndim == 4 and len(pictures) == count))
    fits = fits and kept.labels.dtype == kept.index.dtype == torch.int64
    if not fits or (count and not 0 <= int(kept.labels.min()) <= int(kept.labels.max()) < classes):
        raise UserError(f"{path} does not fit its run of {classes} classes with {dim} features")


def check_shape(path: Path, found: Any) -> tuple[int, ...]:
    """The shape of a sample: one to three numbers."""
    whole = isinstance(found, list | tuple) and 1 <= len(found) <= 3
    if not whole or not all(type(side) is int and 1 <= side <= _LONGEST_SIDE for side in found):
        raise UserError(f"{path} cannot be used: the shape of a sample is {str(found)[:60]}")
    return tuple(found)


def check_names(path: Path, names: tuple[str, ...], classes: int) -> tuple[str, ...]:
    """One for each class."""
    if len(names) != classes:
        raise UserError(f"{path} names {len(names)} classes, but the run has {classes}: the folder is not whole")
    return names


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """No weight is NaN or infinite: a run never saves such."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{path} cannot be used: {name} has NaN or infinite numbers")


def _check_numbers(path: Path, tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{path} is damaged: {name} are not finite numbers")
