"""What an objective needs from the labels alone, one step early: it is computed beside the backward pass.

V-MCR² inverts R^v's matrix, and exact MCR² with a memory a matrix per class. Neither needs the features of its batch.
What they do need, the dictionary or the memory, is ready as soon as the step before has its features.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from .._shared import Aside
from ..objectives import Objective

_LANE = 4


class Ahead(Protocol):
    """What a look-ahead returns."""

    def tensors(self) -> list[Tensor]:
        """All that it holds, always in one order and of one shape."""


class LookAhead:
    """The look-ahead of the next batch, in buffers that stay where they are: a captured step reads them.

    Args:
        objective: whose :meth:`Objective.look_ahead` it is.
        labels: of the training set, (N,).
        following: the index of the batch after the present one, (m,), which is overwritten from step to step.
    """

    def __init__(self, objective: Objective, labels: Tensor, following: Tensor) -> None:
        self.objective, self.labels, self.following = objective, labels, following
        self._early = labels.is_cuda  # on a CPU there is nothing to run beside
        self.ready = False
        """Whether :attr:`_now` belongs to the batch that comes next."""
        self._expected = False
        """Whether :attr:`following` has a batch, be it an old one."""
        self.idle = False
        """Whether nobody looks ahead now: what the objective is told of a batch is not known early."""
        self._now: Any = None
        self._needed = True
        self._side: Aside | None = None

    def expect(self, following: Tensor, *, foreseen: bool) -> None:
        """The batch after the next one. ``foreseen``: the next one was expected, and the step has looked at it."""
        self.following.copy_(following)
        self._expected, self.ready = True, foreseen and self._early

    @property
    def due(self) -> bool:
        """Whether the batch that comes next still has to be looked at."""
        return self._needed and not self.idle and not self.ready

    def prepare(self, index: Tensor) -> None:
        """Have the look-ahead of this batch, unless the step before has made it."""
        if not self.due:
            return
        if not self._expected:  # nobody says what follows. The step looks at some batch: this one has room
            self.following.copy_(index)
            self._expected = True
        self._keep(self.objective.look_ahead(self.labels[index]))
        self._needed, self.ready = self._now is not None, True

    def forget(self) -> None:
        """The step was made, or recorded: what was prepared for it is used up. What follows stays: if recording failed,
        the step is made after all.
        """
        self.ready = False

    def take(self) -> Any:
        """That of the present step."""
        return None if self.idle else self._now

    def start(self) -> None:
        """Begin that of the next step. The present one must have been used: its buffers are overwritten."""
        self.forget()
        if self.idle or not (self._needed and self._early):
            return
        with Aside(self.labels, lane=_LANE) as self._side:
            self._keep(self.objective.look_ahead(self.labels[self.following]))

    def join(self) -> None:
        """Wait for it; a part of the step."""
        if self._side is not None:
            self._side.join()
            self._side = None

    def _keep(self, new: Ahead | None) -> None:
        """In the buffers there are, or as the first buffers. A CPU records nothing, so that it may take others."""
        if self._now is None or new is None or not self._early:
            self._now = new
            return
        old, made = self._now.tensors(), new.tensors()
        for dtype in {tensor.dtype for tensor in made}:
            pairs = [(a, b) for a, b in zip(old, made, strict=True) if b.dtype == dtype and a is not b]
            if pairs:
                torch._foreach_copy_([a for a, _ in pairs], [b for _, b in pairs])
