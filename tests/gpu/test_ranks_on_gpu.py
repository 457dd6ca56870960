"""Several processes on a GPU: nccl inside the captured step, and gloo where processes share a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from ranks_on_gpu import OBJECTIVES, one_over_nccl, two_over_gloo
from torch import Tensor, nn

from vmcr2.distributed import WholeBatch
from vmcr2.models import _fused_mnist

pytestmark = pytest.mark.gpu


def check_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-3, abs=1e-3)
    for name, value in expected["weights"].items():
        own = found["weights"][name]
        if name.endswith("dictionary"):  # an eigenvector has no sign
            own = own * torch.where((own * value).sum(0) < 0, -1.0, 1.0)
        torch.testing.assert_close(own, value, rtol=1e-3, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


def test_one_process_over_nccl_runs_captured_with_the_plain_run_s_numbers(tmp_path: Path) -> None:
    mp.start_processes(one_over_nccl, args=(str(tmp_path),), nprocs=1, start_method="spawn")
    results = torch.load(tmp_path / "results.pt", weights_only=False)
    for objective in OBJECTIVES:
        plain, nccl, many = results[objective]
        for way in (nccl, many):
            assert way["captured"], (objective, way["said"])
            check_same(way, plain)


def test_two_processes_on_one_gpu_over_gloo(tmp_path: Path) -> None:
    """A CUDA graph cannot hold gloo's exchanges: the steps are eager, and a sentence says so."""
    mp.start_processes(two_over_gloo, args=(str(tmp_path),), nprocs=2, start_method="spawn")
    results = torch.load(tmp_path / "results.pt", weights_only=False)
    for objective in OBJECTIVES:
        plain, two = results[objective]
        assert not two["captured"]
        assert "steps run eagerly" in two["said"][0]
        check_same(two, plain)


@pytest.mark.parametrize("layer", ["dropout", "dropout of channels last", "MNIST's kernels"])
def test_a_row_s_dropout_does_not_depend_on_the_processes(layer: str) -> None:
    """The masks of one process with 12 rows, and of one that has the last seven of them."""
    x = torch.rand(12, 64, 28, 28, device="cuda") + 1
    if layer != "dropout":
        x = x.contiguous(memory_format=torch.channels_last)
    bias = torch.zeros(64, device="cuda")

    def dropped(rows: Tensor) -> Tensor:
        torch.manual_seed(0)
        if layer == "MNIST's kernels":
            applied: Tensor = _fused_mnist.Pool.apply(rows, bias, 0.25)  # type: ignore[no-untyped-call]
            return applied
        return nn.functional.dropout(rows, 0.25)

    whole = dropped(x)
    with WholeBatch(slice(5, 12), 12):
        part = dropped(x[5:])
    assert torch.equal(part, whole[5:])
    assert 0.2 < (whole == 0).double().mean() < 0.3
