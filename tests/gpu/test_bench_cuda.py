"""On a CUDA device: the benchmarks run there, eager and captured, and what they time is what a CPU computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vmcr2.bench import (
    _contenders as ways,
    _first_step as first_step,
    _real_run as real_run,
    _scale_contenders as steps,
    epoch,
    epoch_check,
    latch,
    objectives,
    scale,
)
from vmcr2.bench._epochs import CE, Epochs, configuration
from vmcr2.bench._images import random_source
from vmcr2.bench._measure import captured, peak_bytes

pytestmark = pytest.mark.gpu

SIZE = ways.Size("small", 512, 96, 20, 4)
CUDA = torch.device("cuda")


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


def test_epochs_are_replayed_and_count_only_their_own_memory() -> None:
    config, source = configuration("cifar100", CE, CUDA), random_source("cifar100", 8000)
    Epochs(config, source, CUDA)  # libraries take their workspaces, and cuDNN searches
    peaks = []
    others = []
    for _ in range(2):
        ready = Epochs(config, source, CUDA)
        ready.time_one()
        row = ready.row()
        assert row["captured"]
        assert row["images"] == 8000
        peaks.append(row["peak_mib"])
        others.append(ready)  # keeps its memory while the next one is built
    assert peaks[0] > 100
    assert peaks[1] == pytest.approx(peaks[0], rel=0.05)


def test_the_first_step_of_a_new_process_is_a_replayed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_step, "CONTENDERS", first_step.CONTENDERS[1:])
    compiled: list[bool] = []
    whole = first_step.in_new_process

    def watched(objective: str, device: torch.device, images: int | None, caches: Path) -> dict[str, Any]:
        compiled.append(any(caches.rglob("*.cubin")))
        return whole(objective, device, images, caches)

    monkeypatch.setattr(first_step, "in_new_process", watched)
    (row,) = first_step.run(CUDA, images=12_000)
    assert row.get("captured"), row
    assert row["peak_mib"] > 100
    assert compiled == [False, True], "the second process finds the kernels that the first has compiled"


def test_a_real_run_replays_and_is_measured() -> None:
    results = real_run.run(CUDA, [], images=12_000, epochs=4)
    for result in results:
        assert "failed" not in result, result
        assert result["epochs"] == 3
        assert result["train_images"] == 12_000
        assert not any("captured" in note for note in result["notes"])
        assert result["peak_mib"] > 100


def test_the_short_set_of_the_check_is_measured_in_graphs() -> None:
    rows = epoch_check.ShortSet(CUDA, images=8000).measure(1)
    assert [row["captured"] for row in rows] == [True] * len(epoch_check.ROWS)
    assert all(verdict.holds and verdict.compared for verdict in epoch_check.compare(rows, rows))
    assert "| cifar100-preact | CE | 8,000 |" in epoch._table_of_rows(rows)


def test_steps_of_many_classes_are_measured_in_a_graph() -> None:
    record = scale.run(CUDA, budget=0.0, classes=(10, 2000), shape=steps.Shape(256, 64, 2, 8))
    for result in record["results"]:
        for name, row in result["contenders"].items():
            assert "step" in row or (name == steps.SOFT and "left_out" in row), (name, row)
    assert record["results"][1]["contenders"][steps.BLOCK]["peak_mib"] < 64
