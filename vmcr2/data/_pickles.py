"""Reads the pickles of CIFAR's python layout without running anything that they name.

A pickle is a program: it names functions, and Python's loader imports and calls them. Here :mod:`._pickle_machine`
follows the instructions, and the few names that arrays need stand for harmless look-alikes, so a pickle can call
neither numpy nor anything else. Every other name is refused; nothing is imported.
"""

from __future__ import annotations

import pickle  # noqa: F401 - of the doctest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._errors import DataError
from ._pickle_machine import DamagedError, Machine, RefusedError

_DTYPES = frozenset(("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"))
_NDARRAY, _DTYPE, _RECONSTRUCT, _FROM_BUFFER, _ENCODE = "ndarray", "dtype", "reconstruct", "frombuffer", "encode"


class _Name:
    """A name that a pickle may use; ``what`` says for what."""

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what


_ADMITTED = {
    ("numpy", "ndarray"): _Name(_NDARRAY),
    ("numpy", "dtype"): _Name(_DTYPE),
    ("numpy.core.multiarray", "_reconstruct"): _Name(_RECONSTRUCT),  # numpy 1, and Python 2
    ("numpy._core.multiarray", "_reconstruct"): _Name(_RECONSTRUCT),  # numpy 2
    ("numpy.core.numeric", "_frombuffer"): _Name(_FROM_BUFFER),  # protocol 5, numpy 1
    ("numpy._core.numeric", "_frombuffer"): _Name(_FROM_BUFFER),
    ("_codecs", "encode"): _Name(_ENCODE),  # how protocols below 3 write bytes
}


class _DType:
    """The look-alike of ``numpy.dtype``: a plain number type and a byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: object) -> None:
        text = _ascii(code)
        if text not in _DTYPES:
            raise RefusedError(f"has an array of type {text[:20]!r}")
        self.code, self.order = text, "="

    def fill(self, state: object) -> None:
        """With the byte order of numpy's state."""
        order = _ascii(state[1]) if isinstance(state, tuple) and len(state) >= 2 else ""
        if order not in ("<", ">", "|", "="):
            raise RefusedError("has an array of an unknown byte order")
        self.order = order


class _Array:
    """The look-alike of ``numpy.ndarray``: filled by its state, turned into an array by us."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: NDArray[np.generic] | None = None


def _ascii(value: object) -> str:
    if isinstance(value, bytes):
        return value[:100].decode("ascii", "replace")
    return value if isinstance(value, str) else "?"


class _Reading:
    """What the names do, for one pickle; it counts the bytes that they make."""

    def __init__(self, size: int) -> None:
        self._room = 2 * size + 1024  # every byte of an honest pickle is encoded once, as two if it is high

    def named(self, module: str, name: str) -> object:
        """What stands for a name."""
        if (module, name) not in _ADMITTED:
            raise RefusedError(f"names {module[:100]}.{name[:100]}")
        return _ADMITTED[module, name]

    def called(self, function: object, arguments: tuple[Any, ...]) -> object:
        """What numpy's function would make."""
        what = function.what if isinstance(function, _Name) else None
        if what == _DTYPE and arguments:
            return _DType(arguments[0])
        if what == _RECONSTRUCT:
            return _Array()
        if what == _FROM_BUFFER and len(arguments) == 4:
            result = _Array()
            result.value = self._array(*arguments)
            return result
        if what == _ENCODE and arguments and arguments[1:] in (("latin1",), ("latin-1",)):
            return self._encoded(arguments[0])
        raise RefusedError("calls something in a way arrays do not need")

    def built(self, target: object, state: object) -> None:
        """Fill an array or a dtype."""
        if isinstance(target, _DType):
            target.fill(state)
        elif isinstance(target, _Array) and isinstance(state, tuple) and len(state) == 5:
            _, shape, dtype, fortran, raw = state
            target.value = self._array(raw, dtype, shape, "F" if fortran is True or fortran == 1 else "C")
        else:
            raise RefusedError("changes something that is no array of numpy's")

    def _encoded(self, text: object) -> bytes:
        if not isinstance(text, str):
            raise RefusedError("encodes something that is no text")
        self._room -= len(text)  # the same text may be encoded again and again by three bytes each time
        if self._room < 0:
            raise RefusedError("encodes more than it holds")
        return text.encode("latin1")

    def _array(self, raw: object, dtype: object, shape: object, order: object) -> NDArray[np.generic]:
        data = self._encoded(raw) if isinstance(raw, str) else raw  # Python 2 wrote bytes as str
        if not isinstance(data, bytes | bytearray) or not isinstance(dtype, _DType) or not isinstance(shape, tuple):
            raise RefusedError("has an array that is not numbers in memory")
        if not all(type(size) is int and 0 <= size <= len(data) for size in shape) or order not in ("C", "F"):
            raise RefusedError("has an array of an impossible shape")
        # a shape that does not fit the bytes is reshape's error
        flat = np.frombuffer(data, np.dtype(dtype.order + dtype.code))
        return flat.reshape(shape, order="F" if order == "F" else "C")


def read_pickle(data: bytes, where: str) -> dict[str, object]:
    """The dictionary that a pickle holds, its arrays as numpy arrays; ``where`` names the file in the errors.

    >>> read_pickle(pickle.dumps({"data": np.zeros((2, 3), np.uint8), "labels": [4, 1]}), "here")["labels"]
    [4, 1]
    >>> read_pickle(pickle.dumps(print), "here")
    Traceback (most recent call last):
    vmcr2.data._errors.DataError: here names builtins.print, which is not data: do not trust it, fetch the file again
    """
    reading = _Reading(len(data))
    try:
        loaded = Machine(reading.named, reading.called, reading.built).run(data)
    except RefusedError as error:
        raise DataError(f"{where} {error}, which is not data: do not trust it, fetch the file again") from error
    except (DamagedError, ValueError, TypeError, OverflowError) as error:  # of pickletools, of numpy's reshape
        raise DataError(f"{where} is not a whole pickle ({str(error)[:200]}): fetch the file again") from error
    if not isinstance(loaded, dict):
        raise DataError(f"{where} holds no dictionary, so it is not a CIFAR file: fetch the file again")
    return {
        key.decode("latin1") if isinstance(key, bytes) else key: value.value if isinstance(value, _Array) else value
        for key, value in loaded.items()
        if isinstance(key, (str, bytes))
    }
