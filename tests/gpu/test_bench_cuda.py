"""On a CUDA device: the benchmarks run there, eager and captured, and what they time is what a CPU computes."""

from __future__ import annotations

import pytest
import torch

from vmcr2.bench import _contenders as ways, latch, objectives
from vmcr2.bench._measure import captured, peak_bytes

pytestmark = pytest.mark.gpu

SIZE = ways.Size("small", 512, 96, 20, 4)


def test_every_contender_is_measured_and_all_but_the_loop_in_a_graph() -> None:
    result = objectives.measure(SIZE, torch.device("cuda"), 0.0)
    for row in result["contenders"].values():
        assert "failed" not in row, row
        assert row["eager"]["median_ms"] > 0
        assert row["peak_mib"] > 0
    shipped = {
        ways.EXACT,
        ways.EXACT_STEP,
        ways.EXACT_DENSE,
        ways.VARIATIONAL,
        ways.VARIATIONAL_RATE,
        ways.VARIATIONAL_STEP,
    }
    assert shipped <= {name for name, row in result["contenders"].items() if "captured" in row}
    assert "not_captured" in result["contenders"][ways.EXACT_LOOP]


@pytest.mark.parametrize("name", ways.CONTENDERS)
def test_a_contender_computes_what_it_does_on_a_cpu(name: str) -> None:
    gradients = []
    for device in ("cpu", "cuda"):
        batch = ways.Batch(SIZE, torch.device(device))
        z = batch.features.clone().requires_grad_()
        loss = ways.CONTENDERS[name].make(batch).loss(z)
        gradients.append(torch.autograd.grad(loss, z)[0].cpu())
    assert (gradients[0] - gradients[1]).norm() / gradients[0].norm() < 1e-2


def test_a_capture_that_breaks_leaves_the_stream_as_it_was() -> None:
    before = torch.cuda.current_stream()
    x = torch.ones(4, device="cuda")
    with pytest.raises(RuntimeError):
        captured(lambda: x.sum().item())
    assert torch.cuda.current_stream() == before
    assert (x + 1).sum().item() == 8
    replay = captured(lambda: x.add_(1))
    value = x.clone()
    replay()
    assert torch.equal(x, value + 1)


def test_peak_memory_on_the_device() -> None:
    assert peak_bytes(lambda: torch.ones(2**20, device="cuda"), torch.device("cuda")) == 4 * 2**20


def test_latching_is_measured() -> None:
    result = latch.measure(latch.LatchSize(5000, 100, 20, 4, with_eigh=True), torch.device("cuda"), 3)
    assert result[latch.LATCH]["median_ms"] > 0
    assert result["eigh_ms"] > 0
    assert 0.97 < result["energy_of_eigh"] < 1.01
