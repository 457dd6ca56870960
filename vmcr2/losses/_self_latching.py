"""Latching without being asked: from recent features, often at the start and then now and then.

The first steps of a network change all its features. Atoms of the first batch are then wrong, and M pulls the features
to them. So the loss keeps a few rows of recent features and latches on them after 1, 2, 4, … 64 calls and then every
128 calls. A class is latched as soon as it is seen for the first time.

In eager mode a Python counter says when it is due. A recorded step (compiled, or captured in a CUDA graph) cannot ask:
it computes the new atoms in every step and takes them where a counter on the device says so.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..functional import tracing, track_atoms
from ._atoms import AtomState

STEADY = 128
"""Calls between two latchings after the start; a power of two."""
ROWS_PER_ATOM = 4
"""Rows to keep: in a class of average size so many for each of its atoms."""
MEMORY = ("memory_features", "memory_labels", "memory_next", "calls")


def is_due(calls: int) -> bool:
    """Whether the call after so many others latches. The first one latches on its own batch."""
    if calls < STEADY:
        return calls > 0 and calls & (calls - 1) == 0
    return calls % STEADY == 0


def is_due_on_device(calls: Tensor) -> Tensor:
    """The same, of a counter that is not read."""
    return (calls > 0) & torch.where(calls < STEADY, (calls & (calls - 1)) == 0, calls % STEADY == 0)


class SelfLatchingAtoms(AtomState):
    """Γ and Â that latch themselves. Without ``self_latch`` only the first batch does it, and there is no memory."""

    calls: Tensor

    def __init__(self, num_classes: int, dim: int, *, self_latch: bool, **settings: Any) -> None:
        super().__init__(num_classes, dim, **settings)
        self.self_latch = self_latch
        self._calls: int | None = 0  # the buffer `calls` as a Python number; None after a recorded step
        self._complete = False  # whether all classes have been latched
        if self_latch:
            self._make_recent()
            # −1 from the first `latch` on: then it is the caller who latches
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def _make_recent(self) -> None:
        self._make_memory(ROWS_PER_ATOM * self.num_classes * self.atoms_per_class, self.dim)

    def _forget_recent(self) -> None:
        self.memory_labels.fill_(-1)

    @torch.no_grad()
    def _latch_if_due(self, z: Tensor, labels: Tensor) -> bool:
        """Remember the batch and latch, before a step. Says whether Γ and Â may have changed."""
        first = not self._known_latched()
        by_hand = self.latched.clone() if first else None  # the buffer, which a recorded step cannot read
        if first:
            self._latch_on(z, labels)
        if not self.self_latch or self._counted() == -1:
            return first
        if not first and self._calls == 0:  # dictionary and codes were set by hand
            self._end_self_latching()
            return False
        self._remember_some(z, labels)
        recorded = tracing()
        due = is_due_on_device(self.calls) if recorded else is_due(self._calls or 0)
        renewed = not first and (recorded or bool(due) or self._has_new_class(labels))
        if renewed:
            self._latch_on_memory(due, torch.isfinite(z.sum()))
        self._count(by_hand)
        return first or renewed

    def _count(self, by_hand: Tensor | None) -> None:
        """One more call. ``by_hand``: whether dictionary and codes were set by hand before a recorded first call."""
        if not tracing():
            self._calls = (self._calls or 0) + 1
            self.calls.add_(1)
            return
        self._calls = None
        self.calls.add_(self.calls >= 0)
        if by_hand is not None:
            self.calls.copy_(torch.where(by_hand, -1, self.calls))

    def _counted(self) -> int | None:
        if self._calls is None and not tracing():
            self._calls = int(self.calls)
        return self._calls

    def _remember_some(self, z: Tensor, labels: Tensor) -> None:
        """All rows of the batch, or as many as there is room for, evenly."""
        labels = _hard(labels, self.num_classes)
        room = len(self.memory_labels)
        if len(z) > room:
            some = torch.arange(room, device=z.device) * len(z) // room
            z, labels = z[some], labels[some]
        self._remember(z, labels)

    def _latch_on_memory(self, due: Tensor | bool, sound: Tensor) -> None:
        """Renew the atoms of every class that has enough rows, if it is due, and of those that have none yet.

        A batch that is not ``sound`` (finite) changes nothing, as in a step.
        """
        rows, labels, s = self.memory_features, self.memory_labels, self.atoms_per_class
        most = 3 * ROWS_PER_ATOM * s // 2  # three standard deviations above an even share at ten atoms
        dictionary, codes, sizes = track_atoms(rows, labels, self.dictionary, self.num_classes, most)
        filling = (labels < 0).any()
        renew = (sizes >= s) | filling if due is True else due & ((sizes >= s) | filling)
        renew = (sizes > 0) & (renew | (self.codes.sum(0) == 0) | ~self.latched)
        renew = renew & (self.calls >= 0) & sound
        of_atom = renew.repeat_interleave(s, output_size=len(renew) * s)
        self.dictionary.copy_(torch.where(of_atom, dictionary.to(self.dictionary.dtype), self.dictionary))
        kept = torch.where(of_atom.unsqueeze(1), 0.0, self.codes)  # other classes' codes were of the old atoms
        self.codes.copy_(torch.where(renew, self._project_latched(codes.to(kept.dtype)), kept))

    def _has_new_class(self, labels: Tensor) -> bool:
        """Whether a class of this batch has no codes yet; on a GPU without ``validate`` the schedule alone decides."""
        if self._complete or not (labels.device.type == "cpu" or self.validate):
            return False
        without = self.codes.sum(0) == 0
        self._complete = not bool(without.any())
        return not self._complete and bool(without[_hard(labels, self.num_classes)].any())

    def _end_self_latching(self) -> None:
        if self.self_latch:
            self.calls.fill_(-1)
            self._calls = -1

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool, missing: list[str], *rest: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)
        if not self.self_latch:
            return
        if prefix + "calls" not in state_dict:  # of a version without self-latching: it goes on with an empty memory
            missing[:] = [name for name in missing if name not in {prefix + own for own in MEMORY}]
            self._forget_recent()
            self.calls.fill_(STEADY + 1 if self._known_latched() else 0)
        self._calls = int(self.calls)
        self._complete = False


def _hard(labels: Tensor, num_classes: int) -> Tensor:
    """A class for each row; of memberships the largest."""
    if labels.ndim == 2:
        labels = labels.argmax(1)
    return labels.to(torch.int64).clamp(0, num_classes - 1)
