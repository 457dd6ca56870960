"""Block mode of the variational loss: a class owns its atoms, and a step touches the classes of its batch only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._shared import precise_dtype
from ..functional import (
    Atoms,
    BatchClasses,
    BlockPrepared,
    Blocks,
    Classes,
    Problem,
    VariationalTerms,
    block_terms,
    block_terms_with_gradient,
    check_count,
    full_precision,
    inverse_of_sum,
    prepare_block_step,
    problem_of,
    read_batch_classes,
    refuse_transforms,
    tracing,
)
from ._block_atoms import batch_classes, read_shares
from ._block_latching import SelfLatchingBlocks
from ._variational_step import Ahead
from ._vmcr2 import VMCR2Loss


class BlockVMCR2Loss(SelfLatchingBlocks, VMCR2Loss):
    """What ``VMCR2Loss(…, block=True)`` is. Arguments as there."""

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        class_shares: Tensor | None = None,
        balanced_batches: bool = False,
        refresh_every: int = 1000,
        max_classes: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(num_classes, dim, refresh_every=refresh_every, max_classes=max_classes, **settings)
        check_count(refresh_every, "refresh_every")
        if max_classes is not None:
            check_count(max_classes, "max_classes")
        self.balanced_batches = balanced_batches
        self.register_buffer("relative_shares", read_shares(class_shares, num_classes))
        self.register_buffer("running_sum", torch.zeros(dim, dim, dtype=precise_dtype()))
        self.register_buffer("since_refresh", torch.zeros((), dtype=torch.int64))
        self._since = 0

    @property
    def mean_trace(self) -> Tensor:
        """Σ_l Â_lj, the mean over all classes."""
        return self.codes.sum(1).mean()

    @full_precision
    def precise_mismatch(self, z: Tensor, labels: Tensor) -> Tensor:
        """M of unit rows, with the pairs of a sample with itself, in float64: for logs."""
        z = z.detach().double()
        problem = problem_of(z, self._classes(labels, z), eps_sq=1.0, weight=1.0, debias=False, guard=self._guard())
        return self._terms(problem, with_expansion=False).mismatch.clamp_min(0.0)

    def _classes(self, labels: Tensor, rows: Tensor) -> BatchClasses:
        return read_batch_classes(
            labels,
            rows,
            self.num_classes,
            self._guard(),
            max_class_size=self.max_class_size,
            max_classes=self.max_classes,
            importance=self._importance if self.balanced_batches else None,
        )

    def _importance(self, which: Tensor) -> Tensor:
        """π_j over the share that class j has of the batches: then E Σ_j ω_j f_j is Σ_j π_j f_j."""
        return self.relative_shares[which]

    def _look_at(self, classes: Classes) -> None:
        batch_classes(classes).groups(self._guard())

    def _prepared(self, classes: Classes) -> BlockPrepared:
        like = classes.sizes
        c = self.dim / self.eps_sq
        return prepare_block_step(
            Blocks(*self._atoms(like, classes)),
            batch_classes(classes),
            inverse_of_sum(self.running_sum.to(like.dtype), c, self._guard()),
            c=c,
            weight=self._weight(like, classes.num_samples),
            nu_codes=self.scalars.device("nu_codes", like.dtype),
            cap_codes_step=self.cap_codes_step,
        )

    def _terms(self, problem: Problem, with_expansion: bool = True) -> VariationalTerms:
        return block_terms(problem, *self._all_and_some(problem), with_expansion=with_expansion)

    def _terms_with_gradient(
        self, problem: Problem, beta: Tensor, with_expansion: bool
    ) -> tuple[VariationalTerms, Tensor]:
        return block_terms_with_gradient(problem, *self._all_and_some(problem), beta, with_expansion=with_expansion)

    def _all_and_some(self, problem: Problem) -> tuple[Blocks, Tensor]:
        return Blocks(*self._atoms(problem.z, problem.classes)), self.running_sum.to(problem.z.dtype)

    def _atoms_of(self, ahead: Ahead, like: Tensor) -> Atoms:
        if isinstance(ahead.prepared, BlockPrepared):  # gathered already
            return Atoms(*ahead.prepared.blocks)
        return self._atoms(like, ahead.classes)

    def _move(self, atoms: Atoms, classes: Classes) -> None:
        refuse_transforms(atoms.codes)
        self._replace(atoms, batch_classes(classes))
        if not tracing():
            self._since = (self._since or 0) + 1
        self.since_refresh.add_(1)

    def extra_repr(self) -> str:
        """Also that it is in blocks."""
        return f"{super().extra_repr()}, block=True, refresh_every={self.refresh_every}"
