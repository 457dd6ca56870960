"""New pictures for a trained network, as people have them, in the shape that it was trained on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._shared import listed
from ._errors import DataError
from ._from_arrays import channels_first
from ._natural import natural_path
from ._walk import Walk, shown
from ._workers import decoded, decoding_task

_BLOCK = 1000


class Form(NamedTuple):
    """What a network takes."""

    shape: tuple[int, int, int]
    """(channels, height, width)"""
    fit: str
    """how a picture of another size gets there: crop, stretch or pad"""

    @property
    def words(self) -> str:
        """For errors."""
        channels, height, width = self.shape
        return f"{channels}×{height}×{width}"


class Block(NamedTuple):
    """Some pictures of many."""

    names: list[str]
    """of the pictures that could be read"""
    inputs: Tensor
    """uint8 (n, channels, height, width)"""
    unreadable: list[tuple[str, str]]
    """the others, and why"""


class UnreadableError(DataError):
    """A picture that cannot be used. ``kind`` is "broken", "unknown" (no known format) or "too large"."""

    def __init__(self, why: str, kind: str) -> None:
        super().__init__(why)
        self.kind = kind


def picture_from_bytes(content: bytes, form: Form, *, most_pixels: int) -> Tensor:
    """uint8 (channels, height, width) of a file's content, decoded in this thread. For pictures of strangers.

    Icons are not read: one can contain a picture that is larger than its header says.
    """
    task = decoding_task(form.shape, form.fit, most_pixels=most_pixels)
    from ._decode import BrokenError, decode_bytes

    task = replace(task, formats=tuple(name for name in task.formats if name != "ICO"))
    try:
        return _stacked([decode_bytes(content, task)], form)[0]
    except BrokenError as error:
        raise UnreadableError(str(error), error.kind) from None


def picture_files(paths: Sequence[Path | str]) -> list[str]:
    """The pictures that files and folders stand for; a folder's in natural order, with those in its folders."""
    files: list[str] = []
    for given in paths:
        place = Path(os.path.expanduser(given))
        if "://" in str(given):
            raise DataError(f"{given} is a URL, and vmcr2 reads only local files: download it first")
        if place.is_dir():
            found = Walk(place.resolve()).all_below("")
            if not found:
                raise DataError(f"{place} has no pictures: give a folder with pictures, or the pictures themselves")
            files += [str(place / one) for one in sorted((one.path for one in found), key=natural_path)]
        elif place.exists():
            files.append(str(place))
        else:
            raise DataError(f"{place} does not exist: correct the path")
    if not files:
        raise DataError("there are no pictures to look at: give paths of pictures or folders")
    return files


def picture_blocks(files: Sequence[str], form: Form, *, block: int = _BLOCK) -> Iterator[Block]:
    """The pictures of these files, decoded by all cores, in blocks of bounded memory."""
    sizes = [os.path.getsize(file) if os.path.isfile(file) else 0 for file in files]
    names: list[str] = []
    rows: list[bytes] = []
    unreadable: list[tuple[str, str]] = []
    task = decoding_task(form.shape, form.fit)
    for at, (seen, pixels) in enumerate(decoded(list(zip(files, sizes, strict=True)), task)):
        if isinstance(seen, str):
            unreadable.append((files[at], seen))
        else:
            names.append(files[at])
            rows.append(pixels)
        if len(names) + len(unreadable) == block or at + 1 == len(files):
            yield Block(names, _stacked(rows, form), unreadable)
            names, rows, unreadable = [], [], []


def new_pictures(given: Any, form: Form) -> Tensor:
    """uint8 (n, channels, height, width) of paths, pictures of Pillow, arrays, tensors, or a list of any of these.

    Paths and pictures of Pillow may have any size and mode. Arrays and tensors must have the network's shape: nobody
    knows how they were made.
    """
    if isinstance(given, str | os.PathLike):
        return _from_files([given], form)
    if isinstance(given, Tensor | np.ndarray):
        return _from_array(given, form)
    if _is_pillow(given):
        return _from_pillow(given, form)[None]
    if isinstance(given, list | tuple):
        if not given:
            raise DataError("there are no pictures to look at: the list is empty")
        if all(isinstance(one, str | os.PathLike) for one in given):
            return _from_files(given, form)
        return torch.cat([new_pictures(one, form) for one in given])
    raise DataError(
        f"pictures can be paths, pictures of Pillow, uint8 arrays or tensors, a list of these, or a DataLoader; got "
        f"{type(given).__name__}"
    )


def _from_files(paths: Sequence[Any], form: Form) -> Tensor:
    blocks = list(picture_blocks(picture_files(paths), form))
    unreadable = [one for block in blocks for one in block.unreadable]
    if unreadable:
        said = listed((f"{shown([name])} ({why})" for name, why in unreadable), 3)
        raise DataError(f"pictures that cannot be read: {said}; leave them out")
    return torch.cat([block.inputs for block in blocks])


def _from_array(given: Any, form: Form) -> Tensor:
    x = given.detach().cpu().numpy() if isinstance(given, Tensor) else given
    if x.dtype != np.uint8:
        times = "multiply by 255 and " if x.dtype.kind == "f" else ""
        raise DataError(f"pictures are uint8, 0 to 255, and these are {x.dtype}: {times}convert them to uint8")
    channels, height, width = form.shape
    if x.ndim == 2 or (x.ndim == 3 and x.shape in (form.shape, (height, width, channels))):
        x = x[None]  # one picture
    if x.ndim not in (3, 4):
        raise DataError(f"pictures must be {form.words} as in training, got the shape {given_shape(given)}")
    whole = channels_first(x, by_default=isinstance(given, Tensor), part="given")
    if whole.shape[1:] != form.shape:
        raise DataError(
            f"pictures must be {form.words} as in training, got the shape {given_shape(given)}: give paths or pictures "
            "of Pillow, which are resized"
        )
    return torch.from_numpy(np.array(whole))


def given_shape(given: Any) -> str:
    """For errors."""
    return "×".join(map(str, given.shape))


def _is_pillow(given: Any) -> bool:
    return type(given).__module__.partition(".")[0] == "PIL"  # without importing it


def _from_pillow(given: Any, form: Form) -> Tensor:
    from ._decode import BrokenError, fitted, plain, planes

    try:
        upright = plain(given.copy(), form.shape[0])
        return _stacked([planes(fitted(upright, form.shape[1:], form.fit))], form)[0]
    except (BrokenError, OSError) as error:
        raise DataError(f"a picture cannot be used: {error}") from None


def _stacked(rows: list[bytes], form: Form) -> Tensor:
    if not rows:
        return torch.empty(0, *form.shape, dtype=torch.uint8)
    return torch.frombuffer(bytearray(b"".join(rows)), dtype=torch.uint8).reshape(-1, *form.shape)
