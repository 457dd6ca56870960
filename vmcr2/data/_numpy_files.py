"""Reads arrays out of .npy and .npz files of strangers: never a pickle, and nothing is taken for what a header claims.

NumPy makes room for as many numbers as a header says, before it looks how many there are. Here the header is compared
with the bytes that are there, and with the memory that is free.
"""

from __future__ import annotations

import math
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ._columns import MOST_COLUMNS
from ._errors import DataError
from ._memory import refuse_too_large
from ._regular import open_regular

MOST_ARRAYS = 1000
"""In one .npz file."""
# of zipfile, zlib and NumPy's parser of headers, on damaged files
_FILES = (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)
_VALUES = (ValueError, TypeError, KeyError, IndexError, SyntaxError, OverflowError, MemoryError)
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class _Header(NamedTuple):
    shape: tuple[int, ...]
    in_columns: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """In bytes."""
        return self.values * self.dtype.itemsize

    @property
    def values(self) -> int:
        """Of numbers or texts."""
        return math.prod(self.shape)


class ArchiveOfArrays:
    """What is in a .npz file."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        self._members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}

    @property
    def names(self) -> list[str]:
        """Of the arrays."""
        return list(self._members)

    def shape(self, name: str) -> tuple[int, ...]:
        """From the header alone."""
        with self._opened(name) as (_, header):
            return header.shape

    def read(self, name: str) -> NDArray[Any]:
        """One array."""
        with self._opened(name) as (stream, header):
            array = _content(stream, header, self._what(name))
            if stream.read(1):  # at the end zipfile compares the CRC, too
                raise DataError(f"{self._what(name)} is longer than its header says: {_again(self._path)}")
            return array

    def _what(self, name: str) -> str:
        return f"the array {name[:100]} of {self._path}"

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[IO[bytes], _Header]]:
        with _reasons(self._path, self._what(name)), self._archive.open(self._members[name]) as stream:
            yield stream, _header(stream, self._what(name))


@contextmanager
def open_arrays(path: Path) -> Iterator[ArchiveOfArrays]:
    """A .npz file."""
    with open_regular(path) as stream:
        if stream.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
            raise DataError(f"{path} holds one array, not an archive of arrays: call it .npy")
        with _reasons(path, str(path)):
            archive = zipfile.ZipFile(stream)
        with archive:
            if len(archive.namelist()) > MOST_ARRAYS:
                raise DataError(f"{path} has more than {MOST_ARRAYS} arrays: save those that are needed")
            yield ArchiveOfArrays(path, archive)


def is_archive(path: Path) -> bool:
    """Whether a file is a .npz, whatever it is called."""
    with open_regular(path) as stream:
        return stream.read(2) == b"PK"


def read_array(path: Path) -> NDArray[Any]:
    """The array of a .npy file."""
    with open_regular(path) as stream, _reasons(path, str(path)):
        return _content(stream, _header(stream, str(path)), str(path))


@contextmanager
def _reasons(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except (*_FILES, *_VALUES) as error:
        if not path.exists():
            raise DataError(f"{path} is gone: it was removed while it was read") from error
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty: write it again") from error
        reason = str(error)[:200] or type(error).__name__
        raise DataError(f"{what} cannot be read ({reason}): {_again(path)}") from error


def _again(path: Path) -> str:
    return f"write it again with numpy.save{'z' if path.suffix == '.npz' else ''}"


def _header(stream: IO[bytes], what: str) -> _Header:
    try:
        version = npy.read_magic(stream)
    except ValueError:
        raise ValueError("it is not an array that NumPy wrote") from None
    if version not in _HEADERS:
        raise ValueError("its header has a form that plain numbers and texts do not need")
    try:
        header = _Header(*_HEADERS[version](stream))
    except Exception as error:  # it is parsed as Python's source: the tokenizer has errors of its own
        raise ValueError(f"its header is damaged: {error}") from error
    if header.dtype.hasobject:
        raise DataError(
            f"{what} holds Python objects, which are never loaded because they can run code: "
            "save plain numbers, or text with astype(str)"
        )
    if any(length < 0 for length in header.shape) or (header.dtype.itemsize == 0 and header.values > 0):
        raise ValueError(f"its header claims the shape {header.shape} of {header.dtype.itemsize} bytes each")
    return header


def _content(stream: IO[bytes], header: _Header, what: str) -> NDArray[Any]:
    if len(header.shape) == 2 and header.shape[1] > MOST_COLUMNS:
        raise DataError(f"{what} has {header.shape[1]} columns, and a table may have {MOST_COLUMNS}: use fewer")
    refuse_too_large(_taken(header), what)
    raw = stream.read(header.size)
    if len(raw) != header.size:
        raise ValueError(f"it has {len(raw)} bytes of numbers, and its header says {header.size}")
    if header.dtype.kind == "U":
        signs = np.frombuffer(raw, np.dtype("u4").newbyteorder(header.dtype.byteorder))
        if ((signs > sys.maxunicode) | ((signs >= 0xD800) & (signs < 0xE000))).any():  # NumPy fails on the first ones
            raise ValueError("it has signs that are no characters")
    flat = np.frombuffer(raw, header.dtype)
    return flat.reshape(header.shape, order="F" if header.in_columns else "C")


def _taken(header: _Header) -> int:
    """Bytes of memory for the array, and for its columns as float64 or as texts of Python."""
    each = 2 * header.dtype.itemsize + 100 if header.dtype.kind in "SU" else header.dtype.itemsize + 24
    return header.values * each
