"""The exact loss: minus the rate reduction of the batch. With a memory, R_c is taken over past batches too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..distributed import Gathering
from ..functional import (
    Classes,
    Guard,
    HardClasses,
    RateTerms,
    SoftClasses,
    attach_gradient,
    by_kernels,
    carried_compression,
    check_count,
    check_positive,
    compression_with_gradient,
    expansion_with_gradient,
    full_precision,
    rates_of,
    read_classes,
    unit_features,
)
from ._bounded import EXACT, bounded, check_max_gradient
from ._carried import CarriedAhead, CarriedStatistics
from ._exact_gradient import exact_gradient
from ._memory import RememberedFeatures
from ._watch import CollapseWatch


class MCR2Loss(RememberedFeatures):
    """−ΔR of the batch: negative is good, and its floor is minus the maximal rate reduction (Eq. 1 of the paper).

    ``loss(z, labels)`` with z (m, d), and integer labels (m,) or memberships (m, k) whose rows sum to one. The loss has
    nothing to train. If a batch has far fewer samples per class than dimensions (n_j ≪ d), R_c says almost nothing
    about a class, and training stalls with features spread over all directions: use ``memory`` or :class:`VMCR2Loss`.

    With ``memory``, a call in train mode takes R_c of the batch and of the remembered rows together; n_j and γ_j count
    all of them. R is of the batch only. Then the batch's features, as constants, replace the oldest rows. The gradient
    of R_c in the batch is multiplied by rows/m. It is then (c/m)(I + cĈ_j)⁻¹z_i with c = d/ε² and Ĉ_j the second moment
    of all the class's rows, which estimates the gradient over the whole set; only the age of the rows biases it. So it
    is not the gradient of the value. In eval mode and under ``no_grad`` the memory is neither read nor written, and the
    loss is −ΔR of the batch.

    Args:
        num_classes: k. A class that is not in the batch contributes exactly 0.
        eps_sq: ε², the squared precision (never ε), between 1e-12 and 1e12; the paper's 0.5.
        memory: how many rows of past features to keep; 0 for none, otherwise at least the rows of a batch. It needs
            integer labels in train mode, or ``soft_memory``.
        dim: d; needed with ``memory``.
        soft_memory: the rows of the memory may belong to several classes, so that train mode takes memberships too,
            without a gradient in them. Every class is then computed from all rows: that takes longer, and more so with
            more classes. A row of the memory has k more numbers.
        max_gradient: in train mode, the most that the lengths of the gradients in the rows of z may sum to; a larger
            gradient is multiplied by a factor, so it is then not the gradient of the value. Otherwise the first steps
            of SGD can throw all features to one place. None for no bound. A factor in front of the loss multiplies the
            bound too.
        gather: take the rows of all processes of ``torch.distributed`` as the batch. Under DistributedDataParallel the
            network then gets the gradient of one process on the whole batch; see docs/scaling.md. All processes must
            make the same calls. Not in a compiled or captured step.
        normalize: scale the rows of z to unit length first, for |z| ≤ 1e15. A zero row stays zero.
        max_class_size: the most samples of a class, in memory and batch together, where shapes are fixed (under
            ``torch.compile`` or CUDA-graph capture, and on a GPU with ``validate=False``); by default eight standard
            deviations above an even share. A larger class sets ``fault``.
        validate: check the values (finite, labels in range) and raise ``ValueError``; never while compiling or
            capturing. An error that is not raised sets the buffer ``fault``, which stays set until ``fault.zero_()``.

    ``memory_features``, ``memory_labels`` (−1 where a place is empty) and ``memory_next``, the next place to write to,
    are buffers and part of the ``state_dict``; without ``memory`` there are none. With ``soft_memory`` there is
    ``memory_memberships`` (0 where a place is empty) instead of the labels.

    >>> loss = MCR2Loss(2)
    >>> round(loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).item(), 4)
    -0.5878
    """

    fault: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        eps_sq: float = 0.5,
        memory: int = 0,
        dim: int | None = None,
        soft_memory: bool = False,
        max_gradient: float | None = EXACT,
        gather: bool = False,
        normalize: bool = True,
        max_class_size: int | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__()
        check_positive(eps_sq, "eps_sq")
        check_count(num_classes, "num_classes")
        if dim is not None:
            check_count(dim, "dim")
        self.num_classes = num_classes
        self.eps_sq = float(eps_sq)
        self.memory = memory
        self.dim = dim
        self.soft_memory = soft_memory
        self.max_gradient = check_max_gradient(max_gradient)
        self.normalize = normalize
        self.max_class_size = max_class_size
        self.validate = validate
        self.register_buffer("fault", torch.zeros((), dtype=torch.bool), persistent=False)
        if memory != 0:
            check_count(memory, "memory")
            if dim is None:
                raise ValueError("dim is missing: memory needs the features' dimension, MCR2Loss(k, memory=…, dim=d)")
            self._make_memory(memory, dim, num_classes if soft_memory else None)
        elif soft_memory:
            raise ValueError("soft_memory needs a memory: MCR2Loss(k, memory=…, dim=d, soft_memory=True)")
        self._keeps_statistics = False
        self._max_batch_class_size: int | None = None
        self._statistics: CarriedStatistics | None = None
        self._gathering = Gathering(gather)
        self._watch = CollapseWatch()

    @full_precision
    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        """−ΔR, to be minimised. In train mode R_c includes the memory's rows, and the batch is then remembered."""
        z, labels = self._gathering.rows(z, labels)
        if not (self.training and torch.is_grad_enabled()):
            return -self._rates(z, labels).delta
        guard = Guard(self.validate, self.fault)
        outputs, z = z, unit_features(z, guard, self.normalize, self.dim)
        x = z.detach()
        classes = self._classes(labels, x, guard, remembers := self._remembers())
        if remembers and labels.requires_grad:
            raise ValueError("labels: with soft_memory there is no gradient in memberships; pass labels.detach()")
        if remembers:
            with torch.no_grad():
                past = self.memory_features.to(x.dtype)
                R_c, by_compression = carried_compression(x, past, classes, self.eps_sq, guard)
        else:
            R_c, by_compression = compression_with_gradient(x, classes, self.eps_sq, guard)
        R, by_expansion = expansion_with_gradient(x, self.eps_sq, guard)
        if remembers:
            self._remember_batch(x, classes)
        if guard.raises:
            self._watch.look(R, classes, dim=x.shape[1], eps_sq=self.eps_sq)
        gradient = bounded(by_compression - by_expansion, outputs, x, self.normalize, self.max_gradient)
        return attach_gradient(R_c - R, z, gradient)

    @full_precision
    def terms(self, z: Tensor, labels: Tensor) -> RateTerms:
        """R, R_c and ΔR of the batch only, all differentiable; the memory is neither read nor written."""
        return self._rates(*self._gathering.rows(z, labels))

    def _rates(self, z: Tensor, labels: Tensor) -> RateTerms:
        guard = Guard(self.validate, self.fault)
        z = unit_features(z, guard, self.normalize, self.dim)
        classes = read_classes(labels, z, self.num_classes, guard, self.max_class_size)
        return rates_of(z, classes, self.eps_sq, "auto", guard)

    @full_precision
    def surrogate(self, z: Tensor, labels: Tensor, ahead: Classes | CarriedAhead | None = None) -> Tensor:
        """The loss for a training step: the same gradient in z, but its value is 0, which saves the log-dets.

        With ``normalize=False`` rows must not be longer than 1. ``ahead`` is what :meth:`look_ahead` gave for these
        labels, with no other batch in between. Memberships are taken as constants. The batch is remembered, as by the
        loss.
        """
        z, labels = self._gathering.rows(z, labels)
        guard = Guard(self.validate, self.fault)
        remembers = self._remembers()
        # quick: NaN makes a factorisation fail, which sets the flag
        outputs, z = z, unit_features(z, guard, self.normalize, self.dim, quick=True)
        with torch.no_grad():
            gradient = self._gradient(z.detach(), labels, ahead, guard, remembers)
            if self.training:
                gradient = bounded(gradient, outputs, z.detach(), self.normalize, self.max_gradient)
        return attach_gradient(z.new_zeros(()), z, gradient)

    def _gradient(
        self, x: Tensor, labels: Tensor, ahead: Classes | CarriedAhead | None, guard: Guard, remembers: bool
    ) -> Tensor:
        """In the features, which are then remembered."""
        if isinstance(ahead, CarriedAhead) and remembers and ahead.scales.dtype == x.dtype:
            gradient = exact_gradient(x, ahead, self.eps_sq, guard)
            self._remember(x, ahead.classes.labels)
            return gradient
        rows = len(x) + (self.memory if remembers else 0)
        # computed ahead in another precision or mode: compute it again
        if (
            ahead is None
            or isinstance(ahead, CarriedAhead)
            or (ahead.sizes.dtype, ahead.num_samples) != (x.dtype, rows)
        ):
            ahead = self._classes(labels, x, guard, remembers)
        if not remembers:
            return exact_gradient(x, ahead, self.eps_sq, guard)
        gradient = exact_gradient(x, ahead, self.eps_sq, guard, self.memory_features.to(x.dtype))
        self._remember_batch(x, ahead)
        return gradient

    def _remember_batch(self, x: Tensor, classes: Classes) -> None:
        """``classes`` are those of the memory's rows followed by the batch's."""
        rows = classes.labels if isinstance(classes, HardClasses) else classes.membership
        self._remember(x, rows[self.memory :])

    @full_precision
    def look_ahead(self, labels: Tensor) -> Classes | CarriedAhead:
        """What :meth:`surrogate` needs from the labels and the memory; it can be computed before z is known."""
        labels = self._gathering.labels(labels)
        guard = Guard(self.validate, self.fault)
        remembers = self._remembers()
        with torch.no_grad():
            like = torch.empty(len(labels), 0, device=labels.device)
            if remembers and (statistics := self._carried(guard)) is not None:
                batch = read_classes(labels, like, self.num_classes, guard, self._max_batch_class_size)
                if isinstance(batch, HardClasses):
                    batch.look_ahead(guard)
                    return statistics.look_ahead(batch, float(self.dim or 0) / self.eps_sq, guard)
            classes = self._classes(labels, like, guard, remembers)
            classes.look_ahead(guard)
        return classes

    def keep_statistics(self, max_batch_class_size: int | None) -> None:
        """From now on :meth:`look_ahead` keeps class statistics of the memory, where there are kernels for it.

        ``max_batch_class_size``: as ``max_class_size``, of a batch without the memory.
        """
        self._keeps_statistics = self.memory > 0 and not self.soft_memory
        self._max_batch_class_size = max_batch_class_size

    def _carried(self, guard: Guard) -> CarriedStatistics | None:
        """The memory's statistics, where shapes are fixed and there are kernels for them."""
        if not (self._keeps_statistics and guard.static(self.memory_features) and by_kernels(self.memory_features)):
            return None
        if self._statistics is None:
            self._statistics = CarriedStatistics(self.memory_features, self.memory_labels, self.num_classes)
        return self._statistics

    def refresh_statistics(self) -> None:
        """Compute them again from the memory: rounding has added up, or somebody wrote to the memory."""
        if self._statistics is not None:
            self._statistics.refresh()

    def _write(self, places: Tensor, features: Tensor, targets: Tensor) -> None:
        if self._statistics is None:
            super()._write(places, features, targets)
        else:
            self._statistics.replace(places, features, targets)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> MCR2Loss:
        super()._apply(fn, recurse)
        self._statistics = None  # of the memory before it was moved
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self._statistics is not None and self._statistics.features is not self.memory_features:
            self._statistics = None  # assign=True: other buffers
        self.refresh_statistics()

    def __getstate__(self) -> dict[str, Any]:
        # a copy computes them again, on its own device: they follow from the memory, and are larger than it
        return self.__dict__ | {"_statistics": None}

    def _remembers(self) -> bool:
        return self.memory > 0 and self.training and torch.is_grad_enabled()

    def _classes(self, labels: Tensor, like: Tensor, guard: Guard, remembers: bool) -> Classes:
        if remembers:
            return self._classes_with_memory(labels, like, guard)
        return read_classes(labels, like, self.num_classes, guard, self.max_class_size)

    def _classes_with_memory(self, labels: Tensor, like: Tensor, guard: Guard) -> Classes:
        """The classes of the memory's rows followed by the batch's."""
        if len(like) > self.memory:
            raise ValueError(
                f"the batch has {len(like)} rows, memory only {self.memory}: use a memory of at least one batch"
            )
        if self._statistics is not None:
            self._statistics.settle()
        batch = read_classes(labels, like, self.num_classes, guard)
        if self.soft_memory:
            own = batch.membership.detach() if isinstance(batch, SoftClasses) else batch.indicator().T
            return SoftClasses(torch.cat([self.memory_memberships.to(own.dtype), own]), vacant=True)
        if isinstance(batch, SoftClasses):
            raise ValueError(
                "memory takes integer labels (m,), not memberships: soft_memory=True, labels.argmax(1), or memory=0"
            )
        past = torch.where(self.memory_labels < 0, self.num_classes, self.memory_labels)
        rows = torch.cat([past, batch.labels])
        return HardClasses(rows, self.num_classes, batch.sizes.dtype, self.max_class_size, vacant=True)

    def extra_repr(self) -> str:
        """The arguments."""
        kept = f", memory={self.memory}, dim={self.dim}" if self.memory else ""
        kept += ", soft_memory=True" if self.soft_memory else ""
        return f"num_classes={self.num_classes}, eps_sq={self.eps_sq}{kept}, normalize={self.normalize}"
