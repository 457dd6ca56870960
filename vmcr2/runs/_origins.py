"""The values of a recipe, each with its origin."""

from __future__ import annotations

from typing import Any, NamedTuple


class Given(NamedTuple):
    """A value and its origin."""

    value: Any
    origin: str


Values = dict[str, Given]


paper = Given
"""A value that the paper states, and the section."""


def ours(value: Any, why: str = "") -> Given:
    """A value that the paper does not give."""
    return Given(value, "not given in the paper, ours" + (f": {why}" if why else ""))


def changed(value: Any, why: str) -> Given:
    """A value that differs from the paper's on purpose."""
    return Given(value, f"ours, not the paper's: {why}")
