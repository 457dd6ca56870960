"""S samples of each of P classes: what an epoch has, for even and uneven classes, and that it can be drawn again."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
import torch
from seeds import SEED
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from vmcr2._shared import UserError
from vmcr2.data import ClassBatches, ClassBatchSampler


def labels_of(sizes: list[int]) -> Tensor:
    """So many samples of every class, in a random order."""
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))]


CASES = {
    "even": ([8] * 30, 5, 4),
    "all classes in every batch": ([12] * 6, 6, 3),
    "groups that are filled up": ([5, 6, 7] * 8, 4, 4),
    "classes smaller than a group": ([1, 2, 3, 9] * 5, 6, 4),
    "classes without samples": ([8, 0, 8, 0, 8, 8], 3, 4),
    "a long tail": ([200, 90, 40, 20, *([4] * 60)], 8, 4),
    "one class is most of the data": ([300, 4, 4, 4, 4], 3, 2),
    "one class at a time": ([6, 4, 2], 1, 2),
    "single samples": ([3] * 50, 20, 1),
    "the largest classes are in every batch": ([40, 40, 40, 20, 20], 4, 4),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("epoch", [0, 7])
def test_an_epoch_is_what_it_says(case: str, epoch: int) -> None:
    sizes, P, S = CASES[case]
    labels = labels_of(sizes)
    batches = ClassBatches(labels, P, S)
    order = batches.order(torch.Generator().manual_seed(SEED + epoch))
    assert order.shape == (batches.steps * P * S,)
    seen: Counter[int] = Counter()
    for batch in order.reshape(-1, S, P).transpose(1, 2):
        of = labels[batch]
        assert (of == of[:, :1]).all(), "a group is of one class"
        assert len(of[:, 0].unique()) == P, "and no class has two in a batch"
        for group, own in zip(batch.tolist(), of[:, 0].tolist(), strict=True):
            assert len(set(group)) == min(S, sizes[own]), "a sample is there twice only where there are too few"
            seen[own] += 1
    groups = [-(-size // S) for size in sizes]
    within = [min(own, batches.steps) for own in groups]
    assert all(seen[own] <= most for own, most in enumerate(within))
    assert 0 <= sum(within) - sum(seen.values()) < P, "fewer groups than a batch are left out"
    assert sum(min(own, batches.steps + 1) for own in groups) < P * (batches.steps + 1), "no batch more was possible"
    drawn = Counter(order.tolist())
    for own, size in enumerate(sizes):
        if seen[own] == groups[own]:  # nothing of it was left out: all its samples are there, as often as one another
            counts = [drawn[at] for at in (labels == own).nonzero()[:, 0].tolist()]
            assert len(counts) == size
            assert min(counts, default=1) >= 1
            assert max(counts, default=1) - min(counts, default=1) <= 1


def test_even_classes_are_seen_once_and_meet_others_every_time() -> None:
    labels = labels_of([8] * 30)
    batches = ClassBatches(labels, 5, 4)
    assert batches.steps == 12
    order = batches.order(torch.Generator().manual_seed(SEED))
    assert sorted(order.tolist()) == list(range(240))
    meetings = Counter(
        pair
        for batch in labels[order].reshape(12, 4, 5)[:, 0].tolist()
        for pair in {(a, b) for a in batch for b in batch if a < b}
    )
    assert max(meetings.values()) <= 2
    assert sum(count == 1 for count in meetings.values()) > 60  # of 120: the two rounds are drawn apart


def test_what_is_left_out_is_another_in_every_epoch() -> None:
    batches = ClassBatches(labels_of([4] * 7), 5, 4)
    assert batches.steps == 1
    left = [
        frozenset(range(28)) - set(batches.order(torch.Generator().manual_seed(SEED + epoch)).tolist())
        for epoch in range(20)
    ]
    assert len(set(left)) > 10
    assert frozenset.intersection(*left) == frozenset()


def test_the_sampler_in_a_loader() -> None:
    labels = labels_of([8] * 12)
    sampler = ClassBatchSampler(labels, classes_per_batch=4, samples_per_class=2, seed=3)
    loader = DataLoader(TensorDataset(torch.arange(96), labels), batch_sampler=sampler)
    first, second = ([x.tolist() for x, _ in loader] for _ in range(2))
    assert len(loader) == len(first) == 12
    assert all(sorted(Counter(labels[batch].tolist()).values()) == [2] * 4 for batch in first)
    assert first != second
    sampler.set_epoch(0)
    assert [x.tolist() for x, _ in loader] == first
    again = ClassBatchSampler(labels, classes_per_batch=4, samples_per_class=2, seed=3)
    again.set_epoch(1)
    assert list(again) == second
    assert list(ClassBatchSampler(labels, classes_per_batch=4, samples_per_class=2, seed=4)) != first


def test_processes_share_the_classes_of_a_batch() -> None:
    labels = labels_of([8] * 12)
    options = {"classes_per_batch": 5, "samples_per_class": 2}
    whole = list(ClassBatchSampler(labels, **options))
    parts = [list(ClassBatchSampler(labels, **options, rank=rank, processes=3)) for rank in range(3)]
    assert [sorted(chain(*own)) for own in zip(*parts, strict=True)] == [sorted(batch) for batch in whole]
    assert {len(part[0]) for part in parts} == {2, 4}
    with pytest.raises(UserError, match="rank 3 of 3"):
        ClassBatchSampler(labels, **options, rank=3, processes=3)


def test_too_many_classes_in_a_batch() -> None:
    with pytest.raises(UserError, match=r"the data have 3: use at most 3, that is batches of 12"):
        ClassBatches(labels_of([4, 4, 0, 4]), 5, 4)
    with pytest.raises(UserError, match="samples_per_class must be at least 1, got 0"):
        ClassBatches(labels_of([4, 4]), 2, 0)


def test_a_hundred_thousand_classes() -> None:
    labels = labels_of([8, 4] * 50_000)
    batches = ClassBatches(labels, 512, 4)
    assert batches.steps == 150_000 // 512
    owners = labels[batches.order(torch.Generator().manual_seed(SEED))].reshape(-1, 4, 512)[:, 0]
    ordered = owners.sort(dim=1).values
    assert (ordered[:, 1:] > ordered[:, :-1]).all()
