"""The likeliest classes in blocks: the same as from all scores at once, in memory that k does not decide."""

from __future__ import annotations

import pytest
import torch
from recording import LargestStorage
from seeds import randn
from torch import Tensor

from vmcr2.functional import (
    _subspaces,
    _top_classes as module,
    class_subspaces,
    nearest_subspace,
    nearest_subspaces,
    residuals_of,
    subspace_residuals,
    top_logits,
)
from vmcr2.losses import CrossEntropyLoss


def frames(k: int, d: int, r: int) -> Tensor:
    """Random orthonormal bases, (k, d, r)."""
    return torch.linalg.qr(randn(k, d, r)).Q


@pytest.mark.parametrize("budget", [1, 50, 2**24])
def test_nearest_subspaces_are_the_smallest_residuals(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_subspaces, "_COORDINATE_BUDGET", budget)
    bases, z = frames(700, 12, 2), randn(9, 12, seed=1)
    bases[3] = 0.0
    expected = subspace_residuals(z, bases)
    expected[:, 3] = torch.inf  # it has no subspace
    values, labels = expected.sort(dim=1)
    found = nearest_subspaces(z, bases, 6)
    assert torch.equal(found.labels, labels[:, :6])
    assert (found.scores - values[:, :6]).abs().max() < 1e-12
    assert torch.equal(nearest_subspaces(z, bases, 1).labels[:, 0], nearest_subspace(z, bases))
    assert nearest_subspaces(z, bases[:4], 4).labels[:, -1].tolist() == [3] * 9


@pytest.mark.parametrize("budget", [1, 50, 2**24])
def test_top_logits_are_the_largest(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCORE_BUDGET", budget)
    monkeypatch.setattr(module, "_CLASSES", 13)
    z, weight, bias = randn(9, 5), randn(101, 5, seed=1), randn(101, seed=2)
    values, labels = (z @ weight.T + bias).sort(dim=1, descending=True)
    found = top_logits(z, weight, bias, 4)
    assert torch.equal(found.labels, labels[:, :4])
    assert (found.scores - values[:, :4]).abs().max() < 1e-12
    assert top_logits(z[:0], weight, bias, 4).labels.shape == (0, 4)


def test_residuals_of_one_class_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCORE_BUDGET", 70)
    bases, z, labels = frames(20, 12, 2), randn(30, 12, seed=1), torch.arange(30) % 20
    expected = subspace_residuals(z, bases).gather(1, labels[:, None])[:, 0]
    assert (residuals_of(z, bases, labels) - expected).abs().max() < 1e-12


@pytest.mark.parametrize("count", [0, 4])
def test_a_count_that_does_not_exist(count: int) -> None:
    with pytest.raises(ValueError, match=r"count must lie in 1\.\.3"):
        nearest_subspaces(torch.eye(3), torch.eye(3)[:, :, None], count)


@pytest.mark.parametrize("per_class", [3, 90])  # by Gram matrices, and by subspace iteration
def test_fitting_in_blocks_of_classes_changes_nothing(per_class: int, monkeypatch: pytest.MonkeyPatch) -> None:
    k, d, r = 23, 16, 2
    labels = (torch.arange(k * per_class) % k)[
        torch.randperm(k * per_class, generator=torch.Generator().manual_seed(0))
    ]
    labels = torch.where(labels == 5, 6, labels)  # a class without samples
    centres = randn(k, d, r, seed=3)
    z = torch.einsum("mdr,mr->md", centres[labels], randn(len(labels), r, seed=4))
    whole = class_subspaces(z, labels, k, num_components=r)
    monkeypatch.setattr(_subspaces, "_FITTING_BUDGET", 4 * d * (r + 10 + per_class))  # four classes at a time
    blocks = class_subspaces(z, labels, k, num_components=r)
    for name, size in (("energies", (k, r)), ("bases", (k, d, r))):
        assert getattr(blocks, name).shape == size
    assert (blocks.energies - whole.energies).abs().max() < 1e-9 * whole.energies.max()
    assert (blocks.bases @ blocks.bases.mT - whole.bases @ whole.bases.mT).abs().max() < 1e-6
    assert blocks.bases[5].abs().max() == 0


def test_memory_at_a_hundred_thousand_classes() -> None:
    """k = 100,000 and 300 points: an (N, k) matrix would have 3e7 numbers."""
    k, d, n = 100_000, 8, 300
    z = torch.nn.functional.normalize(randn(n, d).float(), dim=1)
    bases = torch.nn.functional.normalize(randn(k, d, 1, seed=1).float(), dim=1)
    head = CrossEntropyLoss(d, k)
    with LargestStorage() as storage:
        near = nearest_subspaces(z, bases, 3)
        logits = head.predict_top(z, 3)
        head.predict(z)
        nearest_subspace(z, bases)
    assert 0 < storage.largest <= 2**24
    first = (z[:5] @ bases[:, :, 0].T).square().topk(3).indices
    assert torch.equal(near.labels[:5], first)
    assert torch.equal(logits.labels[:5], head.head(z[:5]).topk(3).indices)
