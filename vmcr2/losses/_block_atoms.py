"""The state of block mode: each class's own atoms and codes, and the running sum of all that R^v needs of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._shared import precise_dtype
from ..functional import (
    BLOCK_BUDGET,
    Atoms,
    BatchClasses,
    Batches,
    Blocks,
    Classes,
    blank_atoms,
    full_precision,
    latch_blocks,
    latch_blocks_batches,
    refuse_transforms,
    tracing,
)
from ._dictionary_steps import DictionarySteps


class BlockAtoms(DictionarySteps):
    """Γ (k, s, d), Â (k, s), π_j·k (k,) and Σ_j π_j Γ_j Diag(Â_j) Γ_jᵀ (d, d) as buffers.

    Γ is kept class after class, and an atom is a row. So the classes of a batch are read and written as whole stretches
    of s·d floats, and all their atoms together are one matrix (P·s, d) for the d×d products. Codes are (k, s) for the
    same reason.
    """

    running_sum: Tensor
    relative_shares: Tensor
    """π_j·k: 1 in any precision where shares are even."""
    since_refresh: Tensor
    _since: int | None
    """The buffer ``since_refresh`` as a Python number; None after a recorded step."""

    def _make_atoms(self) -> None:
        k, s, d = self.num_classes, self.atoms_per_class, self.dim
        blank = torch.zeros(k, s, dtype=precise_dtype())
        self.register_buffer("dictionary", blank_atoms(s, d, blank).repeat(k, 1, 1))
        self.register_buffer("codes", blank)

    @property
    def class_shares(self) -> Tensor:
        """π_j, (k,)."""
        return self.relative_shares / self.num_classes

    @torch.no_grad()
    def refresh(self) -> None:
        """Compute the running sum Σ_j π_j Γ_j Diag(Â_j) Γ_jᵀ again, of all classes: rounding adds up from step to step.

        A loss that runs eagerly does it by itself, every ``refresh_every`` steps. A recorded step cannot: call it
        between two replays. Call it too after you changed ``dictionary`` or ``codes`` by hand.
        """
        self.running_sum.copy_(sum_of_blocks(self.dictionary, self.codes, self.class_shares))
        self.since_refresh.zero_()
        self._since = 0

    def _refresh_if_due(self) -> bool:
        """Whether Γ's sum was computed again, so that what was made of it is void."""
        if tracing():
            self._since = None
            return False
        if self._since is None:
            self._since = int(self.since_refresh)
        if self._since < self.refresh_every:
            return False
        self.refresh()
        return True

    def _atoms(self, like: Tensor, classes: Classes) -> Atoms:
        which = batch_classes(classes).which
        return Atoms(self.dictionary[which].to(like.dtype), self.codes[which].to(like.dtype))

    def _replace(self, atoms: Atoms, classes: BatchClasses) -> None:
        """Other atoms and codes for the classes of a batch, and their difference in the running sum."""
        which = classes.which
        old = Blocks(self.dictionary[which], self.codes[which])
        new = Blocks(*(classes.fill_places(part.to(self.codes.dtype)) for part in atoms))
        shares = self.relative_shares[which] / self.num_classes
        shares = torch.where(classes.sizes > 0, shares, 0.0)  # a place that is left over has none
        self.running_sum.add_(new.sum(shares) - old.sum(shares))  # exactly 0 of what has not changed
        self.dictionary.index_copy_(0, which, new.atoms)
        self.codes.index_copy_(0, which, new.codes)

    def _latch(self, z: Tensor, labels: Tensor) -> None:
        refuse_transforms(z)
        latch_blocks(z, labels, self.dictionary, self.codes, self._guard())
        self._adopt_blocks()

    def _latch_batches(self, batches: Batches) -> None:
        latch_blocks_batches(batches, self.dictionary, self.codes, self._guard(), normalize=self.normalize)
        self._adopt_blocks()

    def _adopt_blocks(self) -> None:
        self.codes.copy_(self._project_latched(self.codes))
        self.refresh()
        self._mark_latched()

    def _project_latched(self, codes: Tensor) -> Tensor:
        return torch.where(codes.sum(1, keepdim=True) > 0, self._project(codes), codes)

    def _project(self, codes: Tensor) -> Tensor:
        if self.codes_rule == "free":
            return codes.clamp_min(0.0)
        return torch.full_like(codes, self.codes_trace / self.atoms_per_class)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._since = None


@full_precision
def sum_of_blocks(atoms: Tensor, codes: Tensor, shares: Tensor) -> Tensor:
    """Σ_j π_j Γ_j Diag(Â_j) Γ_jᵀ of all classes, (d, d), some classes at a time."""
    _, s, d = atoms.shape
    total = atoms.new_zeros(d, d)
    step = max(1, BLOCK_BUDGET // (s * d))
    for start in range(0, len(atoms), step):
        part = slice(start, start + step)
        total += Blocks(atoms[part], codes[part]).sum(shares[part])
    return total


def read_shares(shares: Tensor | None, num_classes: int) -> Tensor:
    """π_j·k, (k,): checked, or even."""
    if shares is None:
        return torch.ones(num_classes, dtype=precise_dtype())
    if not isinstance(shares, Tensor) or shares.shape != (num_classes,):
        got = tuple(shares.shape) if isinstance(shares, Tensor) else type(shares).__name__
        raise ValueError(f"class_shares must be a tensor of {num_classes} shares, one for each class; got {got}")
    shares = shares.detach().to(torch.float64)
    total = shares.sum()
    if not bool(torch.isfinite(total) & (shares >= 0).all() & ((total - 1.0).abs() < 1e-3)):
        raise ValueError(
            "class_shares must not be negative and must sum to 1: labels.bincount(minlength=k) / len(labels)"
        )
    return (shares / total * num_classes).to(precise_dtype())


def batch_classes(classes: Classes) -> BatchClasses:
    """The same, known to be those of a batch."""
    if not isinstance(classes, BatchClasses):
        raise TypeError("block mode needs the classes of a batch")
    return classes
