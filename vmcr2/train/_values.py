"""Settings as Python code gives them: brought to the type of what they set, so that equal settings are equal runs."""

from __future__ import annotations

import os
import types
import typing
from numbers import Integral, Real
from typing import Any, Literal


def of_kind(kind: Any, value: Any) -> Any:
    """The same value, of that type; TypeError where it cannot be one of that type."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        value = value.item()  # NumPy's numbers and its truth values are Python's
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else of_kind(next(o for o in arguments if o is not types.NoneType), value)
    if origin is Literal:  # whether it is one of the choices is looked at with the rest of what can be wrong
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(of_kind(arguments[0], part) for part in value)
    if not _can_be(kind, value):
        raise TypeError
    return kind(value)


def _can_be(kind: Any, value: Any) -> bool:
    """Whether nothing is lost by the change of type: a bool is no number, 1.5 no whole one, and a text neither."""
    if kind is bool:
        return isinstance(value, bool)
    if kind is str:
        return isinstance(value, str | os.PathLike)
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    return kind is float or (kind is int and (isinstance(value, Integral) or float(value).is_integer()))
