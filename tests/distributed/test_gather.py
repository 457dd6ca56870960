"""Several processes on parts of a batch give the numbers of one process on all of it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import CLASSES, DIM, KINDS, alone

from vmcr2 import MCR2Loss, VMCR2Loss

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")
CASES = ("even", "uneven", "one without rows", "float32")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_one_process(kind: str, case: str, results: dict[str, Any]) -> None:
    """After 20 steps: values, first gradients, weights, Γ, A and remembered rows."""
    dtype, close = (torch.float32, 1e-4) if case == "float32" else (torch.float64, 1e-9)
    found, identical = results["plain"][f"{kind}, {case}"]
    assert identical, "the processes differ"
    expected = alone(kind, dtype)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=close, atol=close, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("kind", ["mcr2", "vmcr2"])
def test_without_it_the_gradient_is_another_and_a_warning_says_so_once(kind: str, results: dict[str, Any]) -> None:
    """The cosines to the whole batch's gradient are 0.83 and 0.88 with 2 processes, 0.73 and 0.75 with 4."""
    found, said = results["plain"]["without"][kind]
    expected = alone(kind, torch.float64)
    names = [name for name in expected if name.startswith("gradient")]
    one, other = (torch.cat([own[name].flatten() for name in names]) for own in (found, expected))
    assert torch.nn.functional.cosine_similarity(one, other, dim=0) < 0.95
    assert len(said) == 1
    assert "this loss sees only the rows of its own" in said[0]


def test_alone_it_changes_nothing() -> None:
    z, labels = torch.randn(20, DIM), torch.arange(20) % CLASSES
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(MCR2Loss(CLASSES, gather=True)(z, labels), MCR2Loss(CLASSES)(z, labels))
        one, other = (VMCR2Loss(CLASSES, DIM, atoms_per_class=2, gather=gather) for gather in (True, False))
        assert torch.equal(one(z.requires_grad_(), labels), other(z, labels))
    assert one.state_dict().keys() == other.state_dict().keys()
