"""Values of settings by their type: read from text, converted without loss, and described in words."""

from __future__ import annotations

import os
import types
import typing
from numbers import Integral, Real
from typing import Any, Literal

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse(kind: Any, text: str) -> Any:
    """The value that a text stands for; ValueError if it is not of that type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if text.lower() in ("none", "null", "") else parse(_not_none(arguments), text)
    if origin is Literal:
        if text not in arguments:
            raise ValueError
        return text
    if origin is tuple:
        return tuple(parse(arguments[0], part) for part in text.split(",") if part.strip())
    if kind is bool:
        if text.lower() not in _TRUTH:
            raise ValueError
        return _TRUTH[text.lower()]
    return kind(text)


def convert(kind: Any, value: Any) -> Any:
    """The same value in that type, so that equal settings are equal runs; TypeError if something would be lost."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        value = value.item()  # NumPy's numbers and truth values become Python's
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if value is None else convert(_not_none(arguments), value)
    if origin is Literal:
        if value not in arguments:
            raise TypeError
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(convert(arguments[0], part) for part in value)
    if not _fits(kind, value):
        raise TypeError
    return kind(value)


def described(kind: Any) -> str:
    """A type in words."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return described(_not_none(arguments)) + " or none"
    if origin is Literal:
        return "one of " + ", ".join(arguments)
    if origin is tuple:
        return f"{described(arguments[0]).removeprefix('a ')}s with commas"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[kind]


def shown(value: Any) -> str:
    """A setting's value as a person would type it."""
    if isinstance(value, tuple | list):
        return ",".join(map(shown, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def _not_none(options: tuple[Any, ...]) -> Any:
    return next(option for option in options if option is not types.NoneType)


def _fits(kind: Any, value: Any) -> bool:
    """Whether a change of type loses nothing: a bool is no number, 1.5 is no whole one, and a text is neither."""
    if kind is bool:
        return isinstance(value, bool)
    if kind is str:
        return isinstance(value, str | os.PathLike)
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    return kind is float or (kind is int and (isinstance(value, Integral) or float(value).is_integer()))
