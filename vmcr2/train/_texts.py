"""Settings as people write them: texts read by the type of what they set."""

from __future__ import annotations

import difflib
import types
import typing
from typing import Any, Literal

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


_CALLED_ELSEWHERE = {
    **{"learning_rate": "lr", "rate": "lr", "wd": "weight_decay", "decay": "weight_decay", "batch": "batch_size"},
    **{"beta": "batch_expansion", "eps": "eps_sq", "epsilon": "eps_sq", "epsilon_sq": "eps_sq", "ema": "average"},
    **{"feature_dim": "dim", "d": "dim", "nu": "nu_dictionary", "scheduler": "schedule", "network": "model"},
}
"""What settings are called by others."""


def nearest(name: str, names: typing.Iterable[str]) -> str:
    """«: did you mean …?», or nothing where nothing is near."""
    names = list(names)
    known = _CALLED_ELSEWHERE.get(name)
    close = [known] if known in names else difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f": did you mean {' or '.join(close)}?" if close else ""


def parse(kind: Any, text: str) -> Any:
    """The value that a text says; ValueError where it says none of that type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if text.lower() in ("none", "null", ""):
            return None
        return parse(next(option for option in arguments if option is not types.NoneType), text)
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


def wanted(kind: Any) -> str:
    """A type in words."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return wanted(next(option for option in arguments if option is not types.NoneType)) + " or none"
    if origin is Literal:
        return "one of " + ", ".join(arguments)
    if origin is tuple:
        return f"{wanted(arguments[0]).removeprefix('a ')}s with commas"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[kind]
