"""What a loss does about several processes: gather, or say once that it sees only a part of the batch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

from ._gather import gather_rows, processes

_GIVEN_WHOLE: ContextVar[bool] = ContextVar("given_whole", default=False)


@contextmanager
def rows_are_whole() -> Iterator[None]:
    """Losses that are made inside get the rows of all processes from their caller: they need not gather, nor warn."""
    before = _GIVEN_WHOLE.set(True)
    try:
        yield
    finally:
        _GIVEN_WHOLE.reset(before)


class Gathering:
    """``rows(z, labels)`` are those of all processes, if ``gather``; otherwise this process's own."""

    def __init__(self, gather: bool) -> None:
        self.gather = gather
        self._said = _GIVEN_WHOLE.get()

    def rows(self, z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Features and labels, or memberships."""
        if processes() == 1:
            return z, labels
        if not self.gather:
            self._say_once()
            return z, labels
        every, of_every = gather_rows(z, labels)
        return every, of_every

    def labels(self, labels: Tensor) -> Tensor:
        """The labels alone."""
        if processes() == 1 or not self.gather:
            return labels
        return gather_rows(labels)[0]

    def _say_once(self) -> None:
        if not self._said:
            self._said = True
            warnings.warn(
                f"there are {processes()} processes, and this loss sees only the rows of its own. A rate belongs to a "
                "set of points: the mean of the processes' gradients is not that of the whole batch. Use gather=True",
                stacklevel=4,
            )
