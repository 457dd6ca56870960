"""Hyper-parameters that may be assigned between steps: a Python number for people, a device scalar for the maths.

The maths reads the device scalar. So an assignment acts from the next step, also inside a captured CUDA graph, in which
a Python number would be a constant.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from ..functional import check_not_negative, check_positive

EXCLUSIVE = {"mu": "weight", "weight": "mu"}
"""Two ways to set one thing: one of them is None."""


def check_scalar(value: float | None, name: str) -> None:
    """The penalty must be above zero; the others may be zero."""
    if name in EXCLUSIVE:
        check_positive(cast(float, value), name)
    else:
        check_not_negative(cast(float, value), name)


class DeviceScalars:
    """Named numbers, each with a copy in one entry of a small tensor."""

    def __init__(self, **values: float | None) -> None:
        for name, value in values.items():
            if value is not None or name not in EXCLUSIVE:
                check_scalar(value, name)
        self._values = {name: None if value is None else float(value) for name, value in values.items()}
        self._index = {name: i for i, name in enumerate(values)}
        self._mirror = torch.empty(0, device="cpu")
        self.to(torch.device("cpu"))

    def __getitem__(self, name: str) -> float | None:
        return self._values[name]

    def __setitem__(self, name: str, value: float) -> None:
        self._values[name] = value
        self._mirror[self._index[name]].fill_(value)

    def device(self, name: str, dtype: torch.dtype) -> Tensor:
        """The number as a 0-dimensional device tensor: a recorded computation reads it again at every replay."""
        return self._mirror[self._index[name]].to(dtype)

    def to(self, device: torch.device) -> None:
        """Copy the numbers to this device. A copy that is there already stays: a captured graph may read it."""
        if self._mirror.numel() and self._mirror.device == device:
            return
        dtype = torch.float32 if device.type == "mps" else torch.float64
        numbers = [math.nan if value is None else value for value in self._values.values()]
        self._mirror = torch.tensor(numbers, dtype=dtype, device=device)


class Scheduled:
    """An attribute of a module whose value is in its ``scalars``."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance.scalars[self.name]

    def __set__(self, instance: Any, value: float) -> None:
        if instance.scalars[self.name] is None:
            other = EXCLUSIVE[self.name]
            raise ValueError(f"this loss was built with {other}: assign {other} instead of {self.name}")
        check_scalar(value, self.name)
        instance.scalars[self.name] = float(value)
