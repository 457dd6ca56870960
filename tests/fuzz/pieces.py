"""How several files, or a file and a choice, stand in one input."""

from __future__ import annotations

from collections.abc import Sequence

BETWEEN = b"--8<--"


def joined(choice: int, *parts: bytes) -> bytes:
    """One input of a choice and several parts."""
    return bytes((choice,)) + BETWEEN.join(parts)


def taken_apart(data: bytes, least: int) -> tuple[int, list[bytes]]:
    """The choice and the parts; empty ones where there are fewer than ``least``."""
    parts = data[1:].split(BETWEEN)
    return (data[0] if data else 0), parts + [b""] * (least - len(parts))


def chosen(number: int, names: Sequence[str]) -> str:
    """One of several names."""
    return names[number % len(names)]
