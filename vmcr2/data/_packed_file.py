"""Opens and writes safetensors files of packed data, with limits that hold before anything is read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .._shared import LOCK, UserError, lock
from ._errors import DataError
from ._regular import open_regular
from ._split import Shape

MOST_HEADER = 1 << 24
"""Bytes of a header. That of a folder with 10,000 classes of long names has one million."""


@contextmanager
def opened(path: Path, again: str) -> Iterator[Any]:
    """The file's tensors, mapped. ``again`` says what to do if it is damaged."""
    with open_regular(path) as stream:
        length = int.from_bytes(stream.read(8), "little")
    if length > MOST_HEADER:
        raise DataError(f"{path} is not a whole safetensors file (its header claims {length} bytes): {again}")
    try:
        with safe_open(path, framework="pt") as handle:
            yield handle
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is not a whole safetensors file ({str(error)[:200]}): {again}") from error


def texts_of(text: str) -> tuple[str, ...] | None:
    """A list of texts that was kept as JSON; None if it is anything else."""
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names)


def fits_together(images: Tensor, labels: Tensor, shape: Shape) -> bool:
    """Whether these are pictures of this shape, at least one, and a class number for each."""
    types = images.dtype == torch.uint8 and labels.dtype == torch.int64
    return types and labels.ndim == 1 and len(labels) > 0 and tuple(images.shape) == (len(labels), *shape)


def write_whole(tensors: Mapping[str, Tensor], metadata: Mapping[str, str], target: Path) -> None:
    """Write a new file, which appears whole or not at all.

    It grows in a folder of its own beside the target. There safetensors puts a temporary file, whose name nobody
    knows: if this process is killed, the next one that writes the same target removes the folder.
    """
    place = target.with_name(f".{target.name}.packing")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with lock(place):  # whoever has it knows that nobody else writes there
            try:
                _clear(place)
                save_file(dict(tensors), place / target.name, dict(metadata))
                # safetensors gives 0600; the lock's file has what the user's umask says
                (place / target.name).chmod((place / LOCK).stat().st_mode)
                os.replace(place / target.name, target)
            finally:
                shutil.rmtree(place, ignore_errors=True)
    except (SafetensorError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)[:200]
        raise DataError(f"{target} cannot be written ({reason}): name another target, or make room") from error
    except UserError as error:
        raise DataError(f"{target} cannot be written: {error}") from error


def _clear(place: Path) -> None:
    """What a killed process left."""
    for half in place.iterdir():
        if half.name != LOCK:
            half.unlink()
