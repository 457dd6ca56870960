"""What was tried: named lists of runs. A run is known by its settings, so a list can be extended and run again."""

from __future__ import annotations

from _levers import levers
from _mnist import mnist
from _narrow import narrow
from _others import others
from _together import together
from _tries import CE, SHORT, START, Try

__all__ = ["CE", "SHORT", "START", "Try", "studies"]


def studies() -> dict[str, list[Try]]:
    """All, by name."""
    return levers() | together() | others() | narrow() | mnist()
