"""`bench objectives`: its contenders compute the same thing, and its tables show what was measured."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vmcr2.bench import _contenders as ways, _measure as measure_module, objectives as bench
from vmcr2.bench._measure import caption, figure, interleaved_seconds, peak_bytes, summary
from vmcr2.bench._textbook import dense_variational_step

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]
SIZE = ways.Size("small", 240, 64, 8, 5)
LABELS: tuple[Any, ...] = ("soft", "hard", "both")
EXACT = (ways.EXACT_LOOP, ways.EXACT_DENSE, ways.EXACT, ways.EXACT_STEP)
VARIATIONAL = (ways.DENSE, ways.VARIATIONAL)
WITH_RATE = (ways.VARIATIONAL_RATE, ways.VARIATIONAL_STEP)
SOFT = (ways.SOFT_BATCHED, ways.SOFT, ways.SOFT_BATCHED_MEMBERSHIP, ways.SOFT_MEMBERSHIP)


def loss_and_gradient(contender: str, size: ways.Size) -> tuple[float, Tensor]:
    batch = ways.Batch(size, CPU)
    z = batch.features.clone().requires_grad_()
    loss = ways.CONTENDERS[contender].make(batch).loss(z)
    (gradient,) = torch.autograd.grad(loss, z)
    return loss.item(), gradient


@pytest.mark.parametrize("size", [SIZE, ways.Size("more classes than samples each", 200, 48, 40, 2)])
@pytest.mark.parametrize("family", [EXACT, VARIATIONAL, WITH_RATE, SOFT])
def test_the_contenders_compute_the_same(family: tuple[str, ...], size: ways.Size) -> None:
    """What makes the comparison fair: one loss and one gradient in z, whichever way they are written."""
    results = {name: loss_and_gradient(name, size) for name in family}
    value, gradient = results[family[0]]
    assert value != 0
    for name, (other_value, other_gradient) in results.items():
        if name not in (ways.EXACT_STEP, ways.VARIATIONAL_STEP):  # gradients without the value
            assert other_value == pytest.approx(value, rel=1e-4), name
        difference = (other_gradient - gradient).norm() / gradient.norm()
        assert difference < 1e-3, name


def test_every_contender_is_in_a_family() -> None:
    assert {*EXACT, *VARIATIONAL, *WITH_RATE, *SOFT} == set(ways.CONTENDERS)
    assert {name for pair in bench.RATIOS.values() for name in pair} <= set(ways.CONTENDERS)


def test_the_ways_to_write_soft_classes_have_the_same_gradient_in_memberships() -> None:
    gradients = []
    for name in (ways.SOFT_BATCHED_MEMBERSHIP, ways.SOFT_MEMBERSHIP):
        batch = ways.Batch(SIZE, CPU)
        ready = ways.CONTENDERS[name].make(batch)
        ways.job_for(ready, batch.features)()
        ways.job_for(ready, batch.features)()  # gradients of two runs do not add up
        assert ready.membership is not None
        assert ready.membership.grad is not None
        gradients.append(ready.membership.grad)
    assert (gradients[0] - gradients[1]).norm() < 1e-3 * gradients[0].norm()


def test_a_size_has_the_contenders_of_its_labels() -> None:
    named = {
        labels: {n for n, c in ways.CONTENDERS.items() if SIZE._replace(labels=labels).has(c)} for labels in LABELS
    }
    assert named["soft"] == set(SOFT)
    assert named["hard"] == set(ways.CONTENDERS) - set(SOFT)
    assert named["both"] == set(ways.CONTENDERS)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return bench.run(
        CPU, budget=0.0, sizes=[SIZE._replace(labels="both"), ways.Size("many", 200, 48, 40, 2, many=True)]
    )


def test_the_record_holds_measured_values(record: dict[str, Any]) -> None:
    assert record == json.loads(json.dumps(record))
    environment = record["environment"]
    assert (environment["device"], environment["torch"]) == ("cpu", torch.__version__)
    assert len(environment["git_commit"]) == 40
    small, many = record["results"]
    assert list(small["contenders"]) == list(ways.CONTENDERS)
    assert set(many["contenders"]) == {ways.EXACT, ways.EXACT_STEP, ways.VARIATIONAL, *WITH_RATE}
    for result in record["results"]:
        for row in result["contenders"].values():
            times = row["eager"]
            assert 0 < times["lower_quartile_ms"] <= times["median_ms"] <= times["upper_quartile_ms"]
            assert times["runs"] >= 3
            assert row["peak_mib"] > 0
            assert "captured" not in row
    of_loop = small["contenders"][ways.EXACT_LOOP]["eager"]["median_ms"]
    of_shipped = small["contenders"][ways.EXACT]["eager"]["median_ms"]
    assert small["ratios"]["eager"]["exact: class loop / as shipped"] == of_loop / of_shipped
    assert many["ratios"]["eager"].keys() == {
        "V-MCR² / exact, as shipped",
        "V-MCR² with R(z) / exact, training steps",
    }


def test_the_table_shows_them(record: dict[str, Any]) -> None:
    lines = bench.table(record).splitlines()
    assert lines[0] == caption(record["environment"]) + "."
    rows = [line for line in lines if line.startswith(("| 240", "| 200"))]
    assert len(rows) == 12 + 5
    row = record["results"][0]["contenders"][ways.VARIATIONAL]
    assert f"| 240, 64, 8, 40 | V-MCR², as shipped | {figure(row['eager'])} | {row['peak_mib']:.0f} |" in rows
    ratio = record["results"][0]["ratios"]["eager"]["V-MCR²: d×d / as shipped"]
    digits = 2 if ratio < 1 else 1
    assert f"| V-MCR²: d×d / as shipped | {ratio:.{digits}f} | – |" in lines
    assert "graph" not in bench.table(record)  # a CPU has none


def test_a_contender_that_fails_leaves_the_rest(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(batch: ways.Batch) -> ways.Ready:
        raise RuntimeError("out of memory: tried to allocate 9 GiB\nand a long story")

    failing = ways.CONTENDERS[ways.DENSE]._replace(make=broken)
    monkeypatch.setitem(ways.CONTENDERS, ways.DENSE, failing)
    flagged = ways.CONTENDERS[ways.EXACT_STEP]._replace(
        make=lambda batch: ways.Ready(lambda z: z.sum(), torch.ones((), dtype=torch.bool))
    )
    monkeypatch.setitem(ways.CONTENDERS, ways.EXACT_STEP, flagged)
    result = bench.measure(SIZE, CPU, 0.0)
    assert result["contenders"][ways.DENSE] == {"failed": "RuntimeError: out of memory: tried to allocate 9 GiB"}
    assert "fault flag" in result["contenders"][ways.EXACT_STEP]["failed"]
    assert result["contenders"][ways.EXACT]["eager"]["median_ms"] > 0
    assert "V-MCR²: d×d / as shipped" not in result["ratios"]["eager"]
    shown = bench.table(record | {"results": [result]})
    assert f"| 240, 64, 8, 40 | {ways.DENSE} | failed | – |" in shown
    assert f"- {ways.DENSE} failed: RuntimeError: out of memory: tried to allocate 9 GiB (small)." in shown


def test_a_cuda_record_shows_both_modes(record: dict[str, Any]) -> None:
    on_cuda = copy.deepcopy(record)
    on_cuda["environment"] |= {"device": "cuda", "gpu": "NVIDIA X", "gpu_gib": 80, "driver": "570.1", "cuda": "13.0"}
    rows = on_cuda["results"][0]["contenders"]
    rows[ways.EXACT]["captured"] = {
        "median_ms": 0.25,
        "lower_quartile_ms": 0.2,
        "upper_quartile_ms": 0.3,
        "runs": 9,
    }
    rows[ways.EXACT_LOOP]["not_captured"] = "it asks"
    on_cuda["results"][0]["ratios"]["captured"] = {"V-MCR² / exact, as shipped": 2.0}
    shown = bench.table(on_cuda)
    assert "NVIDIA X (80 GiB), driver 570.1, CUDA 13.0, torch" in shown
    assert "| in a CUDA graph, ms |" in shown
    assert f"{figure(rows[ways.EXACT]['eager'])} | 0.250 (0.200–0.300) |" in shown
    assert f"- {ways.EXACT_LOOP} is not captured: it asks (small)." in shown
    assert "| V-MCR² / exact, as shipped, in a graph | 2.0 | – |" in shown


def test_rounds_are_taken_in_turn_and_by_budget() -> None:
    order: list[str] = []
    jobs = {name: (lambda name=name: order.append(name)) for name in ("a", "b")}
    seconds = interleaved_seconds(jobs, budget=0.0, least=4)
    assert order == ["a", "b"] * 5  # the first two are warm-up
    assert {name: len(runs) for name, runs in seconds.items()} == {"a": 4, "b": 4}


def test_repeats_fill_a_window() -> None:
    assert [measure_module._repeats(t) for t in (1.0, 1e-3, 1e-6, 0.0)] == [1, 5, 50, 50]


def test_the_summary_is_median_and_quartiles() -> None:
    assert summary([0.001 * value for value in (5, 1, 4, 2, 3)]) == pytest.approx(
        {"median_ms": 3.0, "lower_quartile_ms": 1.5, "upper_quartile_ms": 4.5, "runs": 5}
    )
    assert summary([0.5])["median_ms"] == 500
    assert figure(summary([0.0123])) == "12.3 (12.3–12.3)"


def test_peak_memory_counts_what_lives_at_one_time() -> None:
    def job() -> Tensor:
        for _ in range(3):
            big = torch.ones(2**18)  # 1 MiB, one after another
        return big

    assert 1.0 <= peak_bytes(job) / 2**20 < 2.5


def test_the_textbook_does_not_depend_on_how_many_classes_are_modelled_at_a_time() -> None:
    batch = ways.Batch(SIZE, CPU)
    start = batch.latched(0.0)
    outcomes = []
    for at_a_time in (1, 3, SIZE.k):
        z = batch.features.clone().requires_grad_()
        loss, dictionary, codes = dense_variational_step(
            *(z, batch.labels, start.dictionary, start.codes),
            eps_sq=0.5,
            weight=20.0,
            nu=5.0,
            class_size=batch.class_size,
            at_a_time=at_a_time,
        )
        outcomes.append((loss.detach(), *torch.autograd.grad(loss, z), dictionary, codes))
    for other in outcomes[1:]:
        for one, another in zip(outcomes[0], other, strict=True):
            assert torch.allclose(one, another, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks/results").glob("objectives-*.json")), ids=lambda p: p.stem)
def test_the_readme_holds_the_table_of_the_raw_figures(path: Path) -> None:
    assert bench.table(json.loads(path.read_text())) in (ROOT / "benchmarks/README.md").read_text()
