"""Latching without being asked, where a class owns its atoms: from the rows of a batch and from the atoms themselves.

Recent rows of all classes would be many times the dictionary. But a class's atoms and codes already are a summary of
its past rows: Γ_j Diag(Â_j) Γ_jᵀ. So a class is latched on the rows that a batch has of it, together with what it had
before, which counts for as many rows as are missing from 4·s. It needs no memory. Rows of a batch that are not used at
once are lost, so every class of a batch latches at every call: latching now and then learned half as well
(docs/objectives.md).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..functional import Atoms, BatchClasses, Blocks, refuse_transforms, track_blocks
from ._block_atoms import BlockAtoms, batch_classes
from ._self_latching import ROWS_PER_ATOM


class SelfLatchingBlocks(BlockAtoms):
    """Blocks that latch themselves, class by class. Without ``self_latch`` only the first batch does it."""

    def _make_recent(self) -> None:
        """No rows are kept."""

    def _forget_recent(self) -> None:
        """No rows are kept."""

    @torch.no_grad()
    def _latch_if_due(self, z: Tensor, labels: Tensor) -> bool:
        """Latch the classes of the batch, before a step. Says whether Γ and Â may have changed."""
        refuse_transforms(z)
        changed = self._refresh_if_due()
        first = not self._known_latched()
        if first:
            self._refuse_capture()
        counts = self.self_latch and self._counted() != -1
        if counts and not first and self._calls == 0:  # dictionary and codes were set by hand
            self._end_self_latching()
            counts = False
        if not (first or counts):
            return changed
        classes = batch_classes(self._classes(labels, z))
        may = torch.isfinite(z.sum())
        if first:  # the buffer may say that it is latched: a recorded step cannot ask before
            may = may & ~self.latched
        if self.self_latch:
            may = may & (self.calls >= 0)
        self._latch_classes(z, classes, (classes.sizes > 0) & may)
        if counts:
            self._count(by_hand=self.latched.clone() if first else None)
        if first:
            self._mark_latched()
        return True

    def _latch_classes(self, z: Tensor, classes: BatchClasses, due: Tensor) -> None:
        old = self._atoms(z, classes)
        atoms, codes = old.dictionary.clone(), old.codes.clone()
        for group in classes.groups(self._guard()):
            own = group.classes
            blocks, members, sizes = Blocks(atoms[own], codes[own]), group.gather(z), classes.sizes[own]
            has_some = (blocks.codes.sum(1) > 0).to(z.dtype)
            prior = (ROWS_PER_ATOM * self.atoms_per_class - sizes).clamp_min(0.0) * has_some
            found = track_blocks(members, sizes, blocks, prior)
            mine = due[own].unsqueeze(1)
            atoms.index_copy_(0, own, torch.where(mine.unsqueeze(2), found.atoms, blocks.atoms))
            codes.index_copy_(0, own, torch.where(mine, self._project_latched(found.codes), blocks.codes))
        self._replace(Atoms(atoms, codes), classes)
