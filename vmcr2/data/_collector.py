"""Pauses Python's search for objects in cycles while very many small ones are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """For listings of files, which have no cycles.

    Every new tuple counts towards the next search, and a search visits all objects of torch again: a third of the time
    of listing a hundred thousand files.

    >>> with paused_collector():
    ...     gc.isenabled()
    False
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
