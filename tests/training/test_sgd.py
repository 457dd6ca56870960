"""The optimiser against torch's own: the same bits, and what torch's takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from seeds import seeded
from torch import Tensor

from vmcr2.training._sgd import SGD

TYPES = (torch.float32, torch.float64, torch.float32)


def weights() -> list[Tensor]:
    return [torch.randn(4, 3, generator=seeded(0), dtype=dtype).requires_grad_() for dtype in TYPES]


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_it_is_torchs_step(momentum: float, nesterov: bool) -> None:
    own, torchs = weights(), weights()
    rate = torch.tensor(0.1)
    ours = SGD([{"params": own, "lr": rate, "weight_decay": 0.01}], momentum=momentum, nesterov=nesterov)
    theirs = torch.optim.SGD(
        torchs, lr=rate.clone(), momentum=momentum, nesterov=nesterov, weight_decay=0.01, fused=True
    )
    for step in range(4):
        for mine, other in zip(own[:2], torchs, strict=False):  # the last never has a gradient
            mine.grad = torch.randn(4, 3, generator=seeded(step), dtype=mine.dtype)
            other.grad = mine.grad.clone()
        ours.step()
        theirs.step()
    for mine, other, start in zip(own, torchs, weights(), strict=True):
        assert torch.equal(mine, other)
        assert torch.equal(mine, start) == (mine.grad is None)


def test_a_kernel_gets_weights_of_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU refuses several, as of a backbone in half precision with a head in single."""
    seen: list[set[torch.dtype]] = []
    plain = torch._fused_sgd_

    def watched(parameters: list[Tensor], *others: Any, **options: Any) -> None:
        seen.append({parameter.dtype for parameter in parameters})
        plain(parameters, *others, **options)

    monkeypatch.setattr(torch, "_fused_sgd_", watched)
    own = weights()
    optimizer = SGD([{"params": own, "lr": torch.tensor(0.1), "weight_decay": 0.0}], momentum=0.9, nesterov=False)
    for parameter in own:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert sorted(map(str, set().union(*seen))) == ["torch.float32", "torch.float64"]
    assert all(len(types) == 1 for types in seen)
