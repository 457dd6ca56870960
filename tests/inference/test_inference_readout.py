"""From features to answers: the same numbers as the maths has, for any batch."""

from __future__ import annotations

import pytest
import torch
from seeds import SEED
from torch import nn

from vmcr2.functional import nearest_subspace, subspace_residuals
from vmcr2.inference import Readout


def unit(n: int, d: int, seed: int) -> torch.Tensor:
    z = torch.randn(n, d, generator=torch.Generator().manual_seed(SEED + seed))
    return torch.nn.functional.normalize(z, dim=1)


def some_bases(k: int, d: int, r: int) -> torch.Tensor:
    spread = torch.randn(k, d, r, generator=torch.Generator().manual_seed(SEED))
    return torch.linalg.qr(spread).Q


@pytest.mark.parametrize("r", [1, 3])
def test_residuals_are_those_of_the_subspaces(r: int) -> None:
    bases, z = some_bases(5, 12, r), unit(40, 12, 1)
    answers = Readout(bases, None, by="subspace", novelty_by="subspace", temperature=0.2)(z)
    expected = subspace_residuals(z.double(), bases.double())
    assert torch.allclose(answers.residuals.double(), expected, atol=1e-6)
    assert torch.equal(answers.labels, nearest_subspace(z, bases))
    assert torch.allclose(answers.novelty.double(), expected.min(1).values, atol=1e-6)
    assert torch.allclose(answers.probabilities.double(), torch.softmax(-expected / 0.2, dim=1), atol=1e-5)


def test_a_class_without_a_subspace_is_never_the_answer() -> None:
    bases = some_bases(4, 6, 1)
    bases[2] = 0
    z = unit(200, 6, 2)
    # even points that are orthogonal to all subspaces
    outside = z - z @ torch.linalg.pinv(bases[:, :, 0]) @ bases[:, :, 0]
    both = torch.cat([z, torch.nn.functional.normalize(outside, dim=1)])
    answers = Readout(bases, None, by="subspace", novelty_by="subspace", temperature=0.1)(both)
    assert (answers.labels != 2).all()
    assert (answers.probabilities[:, 2] < 1e-9).all()


def test_a_head_decides_and_subspaces_say_what_is_foreign() -> None:
    bases, z, head = some_bases(3, 8, 2), unit(30, 8, 3), nn.Linear(8, 3)
    answers = Readout(bases, head, by="head", novelty_by="subspace", temperature=2.0)(z)
    assert torch.allclose(answers.probabilities, torch.softmax(head(z) / 2.0, dim=1), atol=1e-6)
    assert torch.equal(answers.labels, head(z).argmax(1))
    assert torch.allclose(answers.novelty, subspace_residuals(z, bases).min(1).values, atol=1e-6)
    unsure = Readout(bases, head, by="head", novelty_by="head", temperature=2.0)(z).novelty
    assert torch.allclose(unsure, 1 - answers.probabilities.max(1).values, atol=1e-6)


def test_many_samples_are_answered_in_blocks() -> None:
    readout = Readout(some_bases(3, 8, 2), nn.Linear(8, 3), by="head", novelty_by="subspace")
    z = unit(4500, 8, 4)
    with torch.no_grad():
        for whole, blocks in zip(readout(z), readout.in_blocks(z), strict=True):
            assert torch.allclose(whole, blocks, atol=1e-6)
