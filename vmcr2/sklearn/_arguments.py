"""Checks the estimators' arguments and converts them to Python's own numbers, because a grid search gives numpy's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch


def keep_arguments(estimator: object, arguments: dict[str, Any]) -> None:
    """What scikit-learn asks of ``__init__``: every argument in an attribute of its name, as it was given."""
    vars(estimator).update({name: value for name, value in arguments.items() if name != "self"})


def whole(name: str, value: Any) -> int:
    """A whole number above 0."""
    if not _is_whole(value):
        raise ValueError(f"{name} must be a whole number above 0, got {value!r}")
    return int(value)


def number(name: str, value: Any, *, zero: bool = False) -> float:
    """A finite number above 0, or of at least 0, that float32 has too."""
    if isinstance(value, Real) and not isinstance(value, bool) and 1e30 < float(value) < math.inf:
        raise ValueError(f"{name} must be at most 1e30, got {value!r}")
    if not isinstance(value, Real) or not 0 <= float(value) < math.inf or (value == 0 and not zero):
        raise ValueError(f"{name} must be a number {'of at least' if zero else 'above'} 0, got {value!r}")
    return float(value)


def widths(hidden: Any) -> tuple[int, ...]:
    """The sizes of the default network's layers."""
    if not isinstance(hidden, Sequence | np.ndarray) or not all(map(_is_whole, hidden)):
        raise ValueError(f"hidden must be whole numbers above 0, one per layer, such as (256, 256), got {hidden!r}")
    return tuple(map(int, hidden))


def usable_device(given: Any) -> torch.device:
    """A device that torch can use here: a number is sent there and back. "auto" is a GPU if there is one."""
    if isinstance(given, str) and given == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(given)
        torch.zeros((), device=device).item()
    except (AssertionError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"device must be one that torch can use here, such as 'auto' or 'cpu', got {given!r}"
        ) from error
    return device


def one_of(name: str, value: Any, choices: Iterable[str]) -> str:
    """One of these words."""
    known = tuple(choices)
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
    return str(value)


def check_components(n_components: Any, dim: int, dim_is: str) -> None:
    """None, or at most as many as there are dimensions."""
    if n_components is not None and whole("n_components", n_components) > dim:
        raise ValueError(f"n_components must lie between 1 and {dim}, {dim_is}, got {n_components}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) > 0
