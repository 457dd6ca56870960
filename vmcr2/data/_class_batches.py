"""Batches with S samples of each of P classes: for thousands of classes, of which a plain batch has one sample each."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import Sampler

from .._shared import UserError


class ClassBatches:
    """Draws epochs of such batches.

    An epoch is one pass. The samples of every class are shuffled and cut into groups of S. The last group of a class is
    filled up with samples of its beginning; a class with fewer than S samples repeats them. A batch is P groups of P
    different classes. So in an epoch every sample is drawn at least once, and classes are drawn in proportion to their
    sizes, with two exceptions:

    - Groups that do not fill a batch, fewer than P, are left out. They are others in every epoch.
    - A class that has more groups than there are batches is in every batch, and the rest of it is left out.

    Args:
        labels: of the training set, (N,) integers.
        classes_per_batch: P.
        samples_per_class: S.
    """

    def __init__(self, labels: Tensor, classes_per_batch: int, samples_per_class: int) -> None:
        for name, value in (("classes_per_batch", classes_per_batch), ("samples_per_class", samples_per_class)):
            if value < 1:
                raise UserError(f"{name} must be at least 1, got {value}")
        self.classes, self.samples = classes_per_batch, samples_per_class
        self.labels = labels.cpu()
        self.sizes = torch.bincount(self.labels)
        present = int((self.sizes > 0).sum())
        if present < classes_per_batch:
            raise UserError(
                f"a batch of {classes_per_batch} classes with {samples_per_class} samples each needs as many classes, "
                f"and the data have {present}: use at most {present}, that is batches of {present * samples_per_class}"
            )
        groups = -(-self.sizes // samples_per_class)
        self.steps = _most_batches(groups, classes_per_batch)
        """Batches of an epoch."""
        self.groups = groups.clamp_max(self.steps)
        """Of every class, as many as are in an epoch at most."""

    def order(self, generator: torch.Generator) -> Tensor:
        """The samples of an epoch, batch after batch: (steps·S·P,) int64.

        A batch is S rounds over its P classes. So neighbours are of different classes, as mixing pictures needs it.
        """
        shuffled = torch.randperm(len(self.labels), generator=generator)
        by_class = shuffled[self.labels[shuffled].argsort(stable=True)]
        starts = self.sizes.cumsum(0) - self.sizes
        owner = torch.repeat_interleave(torch.arange(len(self.groups)), self.groups)
        number = torch.arange(len(owner)) - (self.groups.cumsum(0) - self.groups)[owner]
        # each class's groups are spread evenly over the epoch, at random places of their own parts of it
        when = (number + torch.rand(len(owner), dtype=torch.float64, generator=generator)) / self.groups[owner]
        chosen = when.argsort()[: self.steps * self.classes].reshape(self.steps, self.classes)
        _part_equal_classes(chosen, owner, generator)
        chosen = chosen.flatten()
        within = number[chosen, None] * self.samples + torch.arange(self.samples)
        drawn = by_class[starts[owner[chosen], None] + within % self.sizes[owner[chosen], None]]
        return drawn.reshape(self.steps, self.classes, self.samples).transpose(1, 2).flatten()


def _most_batches(groups: Tensor, classes: int) -> int:
    """The most batches of so many different classes: Σ_j min(g_j, batches) ≥ classes · batches.

    >>> _most_batches(torch.tensor([5, 5, 5]), 2), _most_batches(torch.tensor([100, 1, 1]), 2)
    (7, 2)
    """
    low, high = 1, max(1, int(groups.sum()) // classes)
    while low < high:
        middle = (low + high + 1) // 2
        if int(groups.clamp_max(middle).sum()) >= classes * middle:
            low = middle
        else:
            high = middle - 1
    return low


def _part_equal_classes(chosen: Tensor, owner: Tensor, generator: torch.Generator) -> None:
    """Exchange groups between batches until no batch has two of one class; ``chosen`` (batches, P) is changed.

    Few have any. Of the batches with equal classes, take one with the fewest different classes. Some other batch lacks
    the class that it has twice, because no class has more groups than there are batches. That other batch has at least
    as many different classes, so one of them is missing here: these two groups change places. Every exchange leaves
    fewer equal pairs than before.
    """
    table = owner[chosen]
    ordered = table.sort(dim=1).values
    waiting = [
        (len(set(table[batch].tolist())), batch)
        for batch in (ordered[:, 1:] == ordered[:, :-1]).any(1).nonzero()[:, 0].tolist()
    ]
    heapq.heapify(waiting)
    while waiting:
        different, batch = heapq.heappop(waiting)
        own = table[batch].tolist()
        counts = Counter(own)
        if len(counts) != different:  # an exchange with another batch has changed it
            if len(counts) < len(own):
                heapq.heappush(waiting, (len(counts), batch))
            continue
        double = max(range(len(own)), key=lambda at: counts[own[at]])
        if counts[own[double]] == 1:
            continue
        other, place = _partner(table, own[double], set(own), generator)
        for numbers in (chosen, table):
            here, there = int(numbers[batch, double]), int(numbers[other, place])
            numbers[batch, double], numbers[other, place] = there, here
        heapq.heappush(waiting, (different + 1, batch))


def _partner(table: Tensor, kind: int, present: set[int], generator: torch.Generator) -> tuple[int, int]:
    """A batch without the class ``kind``, and the place of a class in it that is not ``present`` in the first one."""
    first = int(torch.randint(len(table), (1,), generator=generator))
    for offset in range(len(table)):
        other = (first + offset) % len(table)
        own = table[other].tolist()
        missing = [] if kind in own else [at for at, other_kind in enumerate(own) if other_kind not in present]
        if missing:
            return other, missing[0]
    raise RuntimeError("no batch lacks the class")  # see _part_equal_classes


class ClassBatchSampler(Sampler[list[int]]):
    """S samples of each of P classes in every batch: ``DataLoader(…, batch_sampler=ClassBatchSampler(…))``.

    An epoch is one pass over the samples; :class:`ClassBatches` says exactly which. It is a function of ``seed`` and of
    the epoch's number, which goes up by one whenever the sampler is iterated: :meth:`set_epoch` sets it, for a run that
    goes on. With the seed of a configuration it gives the batches that the trainer draws with ``samples_per_class``.

    Args:
        labels: of the training set, (N,) integers.
        classes_per_batch: P.
        samples_per_class: S.
        seed: of the draws.
        rank, processes: with several processes, each gets its share of the classes of every batch. Use a loss with
            ``gather=True`` then.

    >>> sampler = ClassBatchSampler(torch.tensor([0, 0, 1, 1, 2, 2]), classes_per_batch=3, samples_per_class=2)
    >>> [sorted(batch) for batch in sampler]
    [[0, 1, 2, 3, 4, 5]]
    """

    def __init__(
        self,
        labels: Tensor,
        *,
        classes_per_batch: int,
        samples_per_class: int,
        seed: int = 0,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self.batches = ClassBatches(torch.as_tensor(labels), classes_per_batch, samples_per_class)
        if not 0 <= rank < processes <= classes_per_batch:
            raise UserError(
                f"rank must lie in 0..processes − 1, and processes in 1..{classes_per_batch} (classes_per_batch); got "
                f"rank {rank} of {processes}"
            )
        self.seed, self.rank, self.processes = seed, rank, processes
        self.epoch = 0

    def __len__(self) -> int:
        return self.batches.steps

    def set_epoch(self, epoch: int) -> None:
        """The number of the epoch that comes next, from 0."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + self.epoch) % 2**63)
        self.epoch += 1
        classes, samples = self.batches.classes, self.batches.samples
        own = slice(self.rank * classes // self.processes, (self.rank + 1) * classes // self.processes)
        rounds = self.batches.order(generator).reshape(-1, samples, classes)
        for batch in rounds[:, :, own].flatten(1):
            yield batch.tolist()
