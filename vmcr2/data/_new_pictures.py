"""New pictures for a trained network, as people have them, in the shape that it was trained on."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._shared import listed
from ._columns import array_of
from ._dataset import IMAGE
from ._errors import DataError
from ._from_arrays import channels_first
from ._natural import natural_path
from ._pixels import as_bytes
from ._walk import Walk, is_picture_name, shown
from ._workers import decoded, decoding_task

_BLOCK = 1000
_SECONDS = 1.0
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters at least: C:/ is a disk


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


class Files(NamedTuple):
    """Files of pictures, and what could not be read of what was given, with the reason."""

    paths: list[str]
    unreadable: list[tuple[str, str]]


def picture_files(given: Sequence[Path | str]) -> Files:
    """The pictures that files and folders stand for; a folder's in natural order, with those in its folders."""
    files = Files([], [])
    for one in given:
        place = Path(os.path.expanduser(one))
        if _ADDRESS.match(str(one)):
            files.unreadable.append((str(one), "it is an address, and vmcr2 reads only local files: download it first"))
        elif place.is_dir():
            _list_folder(place, files)
        elif place.exists():
            files.paths.append(str(place))
        else:
            files.unreadable.append((str(one), "it does not exist: correct the path"))
    return files


def _list_folder(place: Path, files: Files) -> None:
    walk = Walk(place.resolve())
    found = sorted((one.path for one in walk.all_below("")), key=natural_path)
    files.paths.extend(str(place / path) for path in found)
    linked = "it is a link that leads out of the folder, or to nothing: name it by itself"
    links = [path for path in walk.links if is_picture_name(path) or (place / path).is_dir()]
    files.unreadable.extend((str(place / path), linked) for path in links)
    if not found and not links:
        files.unreadable.append((str(place), "the folder has no pictures"))


def picture_blocks(files: Files, form: Form, *, block: int = _BLOCK, seconds: float = _SECONDS) -> Iterator[Block]:
    """The pictures of these files, decoded by all cores, in blocks of bounded memory.

    A block ends after ``seconds``, too, so that people see how far it is.
    """
    names: list[str] = []
    rows: list[bytes] = []
    unreadable = list(files.unreadable)
    sizes = [os.path.getsize(file) if os.path.isfile(file) else 0 for file in files.paths]
    task = decoding_task(form.shape, form.fit)
    begun = time.monotonic()
    for file, (seen, pixels) in zip(
        files.paths, decoded(list(zip(files.paths, sizes, strict=True)), task), strict=True
    ):
        if isinstance(seen, str):
            unreadable.append((file, seen))
        else:
            names.append(file)
            rows.append(pixels)
        if len(names) >= block or time.monotonic() - begun >= seconds:
            yield Block(names, _stacked(rows, form), unreadable)
            names, rows, unreadable, begun = [], [], [], time.monotonic()
    if names or unreadable:
        yield Block(names, _stacked(rows, form), unreadable)


def new_pictures(given: Any, form: Form) -> Tensor:
    """uint8 (n, channels, height, width) of paths, pictures of Pillow, arrays, tensors, or a list of any of these.

    Paths and pictures of Pillow may have any size and mode. Arrays and tensors must have the network's shape: nobody
    knows how they were made.
    """
    return torch.cat(list(new_picture_parts(given, form)))


def new_picture_parts(given: Any, form: Form) -> Iterator[Tensor]:
    """The same in parts, so that not all pictures of a folder must be in memory at the same time."""
    if isinstance(given, str | os.PathLike):
        yield from _from_files([given], form)
    elif isinstance(given, Tensor | np.ndarray):
        yield _from_array(given, form)
    elif is_pillow(given):
        yield _from_pillow(given, form)[None]
    elif isinstance(given, Mapping) and (keys := [key for key in IMAGE if key in given]):
        yield from new_picture_parts(given[keys[0]], form)  # a batch of a Hugging Face data set
    elif isinstance(given, list | tuple):
        if not given:
            raise DataError("there are no pictures to look at: the list is empty")
        if all(isinstance(one, str | os.PathLike) for one in given):
            yield from _from_files(given, form)
        else:
            for one in given:
                yield from new_picture_parts(one, form)
    else:
        raise DataError(
            f"pictures can be paths, pictures of Pillow, arrays or tensors, a list of these, or a DataLoader; "
            f"got {_kind(given)}"
        )


def _kind(given: Any) -> str:
    """For errors. Of a mapping people must know what it lacks."""
    if isinstance(given, Mapping):
        return f"a {type(given).__name__} with {listed(map(str, given))}, and the pictures must be under {IMAGE[0]!r}"
    return type(given).__name__


def _from_files(paths: Sequence[Any], form: Form) -> Iterator[Tensor]:
    files = picture_files(paths)
    _refuse(files.unreadable)
    for block in picture_blocks(files, form):
        _refuse(block.unreadable)
        yield block.inputs


def _refuse(unreadable: list[tuple[str, str]]) -> None:
    if unreadable:
        said = listed((f"{shown([name])} ({why})" for name, why in unreadable), 3)
        raise DataError(f"what cannot be read: {said}; leave it out")


def _from_array(given: Any, form: Form) -> Tensor:
    x = as_bytes(array_of(given), "what was given")
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


def is_pillow(given: Any) -> bool:
    """Whether it is a picture of Pillow."""
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
