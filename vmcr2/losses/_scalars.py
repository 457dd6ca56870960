"""Hyper-parameters that may be assigned between steps: a Python number for people, a device scalar for the maths.

The maths reads the device scalar, so that an assignment acts from the next step even inside a captured CUDA graph,
where a Python number would have been baked in.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


class DeviceScalars:
    """Named numbers, each mirrored in one entry of a small tensor."""

    def __init__(self, **values: float | None) -> None:
        self._values = values
        self._index = {name: i for i, name in enumerate(values)}
        self._mirror = torch.empty(0)
        self.to(torch.device("cpu"))

    def __getitem__(self, name: str) -> float | None:
        return self._values[name]

    def __setitem__(self, name: str, value: float) -> None:
        self._values[name] = value
        self._mirror[self._index[name]].fill_(value)

    def device(self, name: str, dtype: torch.dtype) -> Tensor:
        """The number as a 0-dimensional device tensor: what a recorded computation reads anew at every replay."""
        return self._mirror[self._index[name]].to(dtype)

    def to(self, device: torch.device) -> None:
        """Mirror the numbers on this device."""
        dtype = torch.float32 if device.type == "mps" else torch.float64
        numbers = [math.nan if value is None else value for value in self._values.values()]
        self._mirror = torch.tensor(numbers, dtype=dtype, device=device)


class Scheduled:
    """An attribute of a module that lives in its ``scalars``."""

    def __init__(self, *, zero_allowed: bool = False) -> None:
        self.zero_allowed = zero_allowed

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance.scalars[self.name]

    def __set__(self, instance: Any, value: float) -> None:
        if instance.scalars[self.name] is None:
            other = {"mu": "weight", "weight": "mu"}[self.name]
            raise ValueError(f"this loss was built with {other}: assign {other} instead of {self.name}")
        value = float(value)
        if not math.isfinite(value) or value < 0 or (value == 0 and not self.zero_allowed):
            least = "at least" if self.zero_allowed else "above"
            raise ValueError(f"{self.name} must be a finite number {least} 0, got {value!r}")
        instance.scalars[self.name] = value
