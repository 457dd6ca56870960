"""Reads the pickles of CIFAR's python layout without running anything that they name.

A pickle is a program: it names functions, and Python's loader imports and calls them. Here the few names that arrays
need stand for harmless look-alikes, so a pickle can call neither numpy nor anything else. Every other name is refused
before it is imported.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ._errors import DataError

_DTYPES = frozenset(("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"))


class _RefusedError(Exception):
    """The pickle asks for more than data."""


class _Name:
    """A name that a pickle may use. It may be callable, and it cannot be changed."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., object] | None = None) -> None:
        self._call = call

    def __call__(self, *arguments: object) -> object:
        if self._call is None:
            raise _RefusedError("calls a type that is only data")
        return self._call(*arguments)

    def __setstate__(self, state: object) -> NoReturn:
        # the BUILD instruction would otherwise set attributes, and so replace what later pickles call
        raise _RefusedError("changes a function")


class _DType:
    """The look-alike of ``numpy.dtype``: a plain number type and a byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: object, *_: object) -> None:
        text = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        if text not in _DTYPES:
            raise _RefusedError(f"has an array of type {code!r}")
        self.code, self.order = str(text), "="

    def __setstate__(self, state: object) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) >= 2 else None
        order = order.decode("ascii", "replace") if isinstance(order, bytes) else order
        if order not in ("<", ">", "|", "="):
            raise _RefusedError("has an array of an unknown byte order")
        self.order = str(order)


class _Array:
    """The look-alike of ``numpy.ndarray``: filled by its state, turned into an array by us."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: NDArray[np.generic] | None = None

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _RefusedError("has an array whose state is not numpy's")
        _, shape, dtype, fortran, raw = state
        self.value = _array(raw, dtype, shape, "F" if fortran else "C")


def _array(raw: object, dtype: object, shape: object, order: object) -> NDArray[np.generic]:
    data = raw.encode("latin1") if isinstance(raw, str) else raw  # Python 2 wrote bytes as str
    if not isinstance(data, (bytes, bytearray)) or not isinstance(dtype, _DType) or not isinstance(shape, tuple):
        raise _RefusedError("has an array that is not numbers in memory")
    if not all(type(size) is int and size >= 0 for size in shape) or order not in ("C", "F"):
        raise _RefusedError("has an array of an impossible shape")
    # a shape that does not fit the bytes is reshape's error
    return np.frombuffer(data, np.dtype(dtype.order + dtype.code)).reshape(shape, order="F" if order == "F" else "C")


def _from_buffer(raw: object, dtype: object, shape: object, order: object) -> _Array:
    result = _Array()
    result.value = _array(raw, dtype, shape, order)
    return result


def _encode(text: object, encoding: object = "") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise _RefusedError("encodes text in a way arrays do not need")
    return text.encode("latin1")


_NDARRAY = _Name()
_RECONSTRUCT = _Name(lambda *_: _Array())
_FROM_BUFFER = _Name(_from_buffer)
_ADMITTED = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Name(_DType),
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,  # numpy 1, and Python 2
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,  # numpy 2
    ("numpy.core.numeric", "_frombuffer"): _FROM_BUFFER,  # protocol 5, numpy 1
    ("numpy._core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("_codecs", "encode"): _Name(_encode),  # how protocols below 3 write bytes
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> object:
        if (module, name) not in _ADMITTED:
            raise _RefusedError(f"names {module}.{name}")
        return _ADMITTED[module, name]


def read_pickle(data: bytes, where: str) -> dict[str, object]:
    """The dictionary that a pickle holds, its arrays as numpy arrays; ``where`` names the file in the errors.

    >>> read_pickle(pickle.dumps({"data": np.zeros((2, 3), np.uint8), "labels": [4, 1]}), "here")["labels"]
    [4, 1]
    >>> read_pickle(pickle.dumps(print), "here")
    Traceback (most recent call last):
    vmcr2.data._errors.DataError: here names builtins.print, which is not data: do not trust it, fetch the file again
    """
    try:
        # latin1 keeps every byte of a Python 2 string, the only kind the published files have
        loaded = _Unpickler(io.BytesIO(data), encoding="latin1").load()
    except _RefusedError as error:
        raise DataError(f"{where} {error}, which is not data: do not trust it, fetch the file again") from error
    except Exception as error:  # a corrupt pickle can raise anything, and all of it means the same
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{where} is not a whole pickle ({reason}): fetch the file again") from error
    if not isinstance(loaded, dict):
        raise DataError(f"{where} holds no dictionary, so it is not a CIFAR file: fetch the file again")
    return {
        key.decode("latin1") if isinstance(key, bytes) else key: value.value if isinstance(value, _Array) else value
        for key, value in loaded.items()
        if isinstance(key, (str, bytes))
    }
