"""Numbers of a picture as bytes, whatever they were given as."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._errors import DataError


def as_bytes(array: NDArray[Any], where: str) -> NDArray[np.uint8]:
    """uint8 as it is; floats between 0 and 1, as torchvision's ToTensor makes them, times 255. Others are an error.

    >>> as_bytes(np.array([0.0, 0.2, 1.0]), "the picture").tolist()
    [0, 51, 255]
    """
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        raise DataError(f"{where} has pixels of type {array.dtype}: give uint8, or floats between 0 and 1")
    if array.size and not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
        raise DataError(f"{where} has numbers outside 0..1: give floats between 0 and 1, not normalised, or uint8")
    return np.asarray(np.rint(array * 255), dtype=np.uint8)
