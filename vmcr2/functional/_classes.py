"""Which sample belongs to which class: hard labels as padded groups, soft labels as a membership matrix."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ._closed_form import refuse_vmap
from ._linalg import Guard

# Classes share a padded group if the smallest has at least this part of the largest's samples: few kernel launches, and
# padding adds at most 1/0.8 times the samples and 1/0.8² times the Gram entries.
GROUP_RATIO = 0.8


# The most floats of the indicator matrix: 64 MiB in float32.
INDICATOR_FLOATS = 2**24


class ClassGroup(NamedTuple):
    """Classes of similar size. ``rows[b, i]`` is the i-th sample of ``classes[b]``, or m if there is none."""

    classes: Tensor
    rows: Tensor

    def gather(self, z: Tensor, scale: Tensor | None = None) -> Tensor:
        """The group's samples, each times its class's ``scale``: (classes, size, d), with zero rows as padding."""
        if z.is_cuda:  # a copy with a zero row is faster on a GPU, a mask on a CPU
            members = torch.cat([z, z.new_zeros(1, z.shape[1])])[self.rows]
        else:
            members = z[self.rows.clamp_max(len(z) - 1)].mul_((self.rows < len(z)).unsqueeze(2))
        return members if scale is None else members.mul_(scale[self.classes, None, None])

    def copy_to(self, total: Tensor, values: Tensor) -> None:
        """Write each sample's row of ``values`` to its row of ``total``, which has one row more, for the padding."""
        total.index_copy_(0, self.rows.flatten(), values.flatten(0, 1))

    def places(self, num_samples: int) -> Tensor:
        """The place of each sample in the flattened group, (m,), if the group holds them all."""
        slots = torch.arange(self.rows.numel(), device=self.rows.device)
        return torch.empty(num_samples + 1, dtype=torch.int64, device=slots.device).scatter_(
            0, self.rows.flatten(), slots
        )[:num_samples]


class HardClasses:
    """A partition by integer labels, already checked or clamped into range.

    With ``vacant``, the label ``num_classes`` marks a row that is in no class. It is in no group, and proportions count
    the other rows only. Only R_c is taken of such a partition.

    ``importance`` (k,) is how often a sample of each class counts in M and R^v_c; once where it is None.
    """

    def __init__(
        self,
        labels: Tensor,
        num_classes: int,
        dtype: torch.dtype,
        max_class_size: int | None,
        *,
        vacant: bool = False,
        importance: Tensor | None = None,
    ) -> None:
        self.labels = labels
        self.num_classes = num_classes
        self.num_samples = len(labels)
        self.max_class_size = max_class_size
        ones = torch.ones_like(labels)
        counts = torch.zeros(num_classes + vacant, dtype=labels.dtype, device=labels.device)
        self._counts = counts.scatter_add(0, labels, ones)[:num_classes]
        self.sizes = self._counts.to(dtype)
        self.proportions = self.sizes / (self._counts.sum() if vacant else self.num_samples)
        self.importance = importance
        if importance is not None:
            self.proportions = self.proportions * importance
        self._groups: list[ClassGroup] = []
        self._places: Tensor | None = None
        self._indicator: Tensor | None = None

    def sum(self, x: Tensor) -> Tensor:
        """Σ over each class's samples: (m, n) -> (k, n)."""
        return x.new_zeros(self.num_classes, x.shape[1]).index_add_(0, self.labels, x)

    def spread(self, table: Tensor) -> Tensor:
        """Each sample's row of a table with one row per class: (k, n) -> (m, n)."""
        return table[self.labels]

    def indicator(self) -> Tensor:
        """Π as a matrix, (k, m): a sum over classes is then one product, faster on a GPU than atomic additions."""
        if self._indicator is None:
            every = torch.arange(self.num_classes, device=self.labels.device)
            self._indicator = (every.unsqueeze(1) == self.labels).to(self.sizes.dtype)
        return self._indicator

    def look_ahead(self, guard: Guard) -> None:
        """Compute now what depends on the labels only."""
        self.groups(guard)
        if self._sums_by_product(self.labels):
            self.indicator()

    def tensors(self) -> list[Tensor]:
        """All that :meth:`look_ahead` computes: what a recorded step must find in its place."""
        held = [self.labels, self._counts, self.sizes, self.proportions, self.importance, self._places, self._indicator]
        return [tensor for tensor in held if tensor is not None] + [part for group in self._groups for part in group]

    def _sums_by_product(self, x: Tensor) -> bool:
        return x.is_cuda and self.num_classes * self.num_samples <= INDICATOR_FLOATS

    def add_sums(self, table: Tensor, weights: Tensor, x: Tensor) -> Tensor:
        """``table`` + weights_j · Σ over class j's samples of x: (k, n), (k,), (m, n) -> (k, n)."""
        if self._sums_by_product(x):
            return torch.addmm(table, self.indicator() * weights.unsqueeze(1), x)
        return torch.addcmul(table, self.sum(x), weights.unsqueeze(1))

    def collect(self, parts: Iterable[Tensor], dim: int) -> Tensor:
        """The rows of the groups, (classes, size, d) each, back in the order of the samples: (m, d).

        The result of a vacant row has no meaning.
        """
        if self._places is not None:
            (rows,) = parts
            return rows.flatten(0, 1)[self._places]
        total = self.sizes.new_empty(self.num_samples + 1, dim)
        for group, rows in zip(self._groups, parts, strict=True):
            group.copy_to(total, rows)
        return total[: self.num_samples]

    def groups(self, guard: Guard) -> list[ClassGroup]:
        """Present classes in groups of similar size, or one group where shapes must not depend on values."""
        if not self._groups:
            self._groups = self._grouped(guard)
        return self._groups

    def padded(self, size: int) -> ClassGroup:
        """All classes in one group of ``size`` rows each; of a larger class, the first rows."""
        every = torch.arange(self.num_classes, device=self.labels.device)
        order, starts, _ = self.sorted()
        return self._group(every, size, order, starts)

    def sorted(self) -> tuple[Tensor, Tensor, Tensor]:
        """The rows in the order of their classes, where each class starts, and how many rows it has."""
        return torch.argsort(self.labels, stable=True), self._counts.cumsum(0) - self._counts, self._counts

    def _grouped(self, guard: Guard) -> list[ClassGroup]:
        if guard.static(self.labels):
            size = self.static_size()
            guard.report(self._counts > size, lambda: "a class is larger than max_class_size")
            whole = self.padded(size)
            # a class above its capacity is flagged; its samples, and vacant rows, still need a place that exists
            self._places = whole.places(self.num_samples).clamp(0, whole.rows.numel() - 1)
            return [whole]
        refuse_vmap(self.labels)
        order, starts, _ = self.sorted()
        groups = []
        counts = self._counts.tolist()
        present = sorted((j for j in range(self.num_classes) if counts[j]), key=lambda j: -counts[j])
        while present:
            size = counts[present[0]]
            end = sum(counts[j] >= GROUP_RATIO * size for j in present)
            groups.append(self._group(torch.tensor(present[:end], device=order.device), size, order, starts))
            present = present[end:]
        return groups

    def static_size(self) -> int:
        """Rows per class where shapes are fixed: ``max_class_size``, or 8 standard deviations above an even share."""
        if self.max_class_size is not None:
            return min(self.max_class_size, self.num_samples)
        return min(class_capacity(self.num_samples / self.num_classes), self.num_samples)

    def _group(self, classes: Tensor, size: int, order: Tensor, starts: Tensor) -> ClassGroup:
        slot = torch.arange(size, device=order.device)
        position = (starts[classes].unsqueeze(1) + slot).clamp_max(self.num_samples - 1)
        filled = slot < self._counts[classes].unsqueeze(1)
        return ClassGroup(classes, torch.where(filled, order[position], self.num_samples))


def class_capacity(share: float, deviations: float = 8.0) -> int:
    """Rows for a class that has ``share`` samples in a batch on average: Poisson's standard deviation is √share."""
    return math.ceil(share + deviations * math.sqrt(share) + deviations)


class SoftClasses:
    """A membership matrix Π (m, k) whose rows sum to one.

    A class whose mass Σ_i Π_ij is below the rounding of m is absent: its column is set to zero, and it adds exactly 0.
    What it would add is smaller than the rounding of the other classes, and 1/n_j² would overflow.

    With ``vacant``, a row of zeros is in no class, and proportions count the other rows only.
    """

    def __init__(self, membership: Tensor, *, vacant: bool = False) -> None:
        self.num_samples, self.num_classes = membership.shape
        mass = membership.detach().sum(0)
        present = mass > torch.finfo(mass.dtype).eps * self.num_samples
        self.membership = torch.where(present, membership, 0.0)
        self.importance: Tensor | None = None
        self.sizes = torch.where(present, mass, 0.0)
        self.count: Tensor | int = self.sizes.sum() if vacant else self.num_samples
        """m: the rows that are in a class."""
        self.proportions = self.sizes / self.count

    def sum(self, x: Tensor) -> Tensor:
        """Σ_i Π_ij x_i: (m, n) -> (k, n)."""
        return self.membership.T @ x

    def spread(self, table: Tensor) -> Tensor:
        """Σ_j Π_ij table_j: (k, n) -> (m, n)."""
        return self.membership @ table

    def look_ahead(self, guard: Guard) -> None:
        """Nothing to compute for memberships."""

    def tensors(self) -> list[Tensor]:
        """All that it holds."""
        return [self.membership, self.sizes, self.proportions]

    def add_sums(self, table: Tensor, weights: Tensor, x: Tensor) -> Tensor:
        """``table`` + weights_j · Σ_i Π_ij x_i: (k, n), (k,), (m, n) -> (k, n)."""
        return torch.addcmul(table, self.sum(x), weights.unsqueeze(1))


Classes = HardClasses | SoftClasses


def safe_reciprocal(x: Tensor) -> Tensor:
    """1/x, and 0 where x is 0: an absent class then adds exactly 0."""
    return torch.where(x > 0, 1.0 / torch.where(x > 0, x, 1.0), 0.0)
