"""What a look at a person's own data found, before anybody trains on it."""

from __future__ import annotations

from typing import NamedTuple


class Findings(NamedTuple):
    """A table in words, and what is wrong."""

    title: str
    """the folder or file"""
    rows: tuple[tuple[str, str], ...]
    """(what, how many or which), in the order to show them"""
    problems: tuple[str, ...]
    """one sentence each: what is wrong, where, what to do"""
