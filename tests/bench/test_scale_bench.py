"""`bench scale`: what is timed are the losses' own steps on other classes each time; what is left out is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from vmcr2 import MCR2Loss
from vmcr2.bench import scale as bench
from vmcr2.bench._measure import figure
from vmcr2.bench._scale_contenders import BLOCK, CONTENDERS, EXACT, HEAD, SHARED, SOFT, Shape, Turns

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]
SMALL = Shape(32, 12, 2, 4)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return bench.run(CPU, budget=0.0, classes=(5, 40), shape=SMALL)


def test_the_record_holds_measured_values(record: dict[str, Any]) -> None:
    assert record == json.loads(json.dumps(record))
    assert [(result["k"], result["present"]) for result in record["results"]] == [(5, 5), (40, 8)]
    for result in record["results"]:
        assert list(result["contenders"]) == list(CONTENDERS)
        for row in result["contenders"].values():
            assert 0 < row["step"]["lower_quartile_ms"] <= row["step"]["median_ms"]
            assert row["step"]["runs"] >= 3
            assert row["peak_mib"] > 0
    small, large = (result["contenders"] for result in record["results"])
    assert large[BLOCK]["state_mib"] < 10 * small[BLOCK]["state_mib"]
    numbers = 40 * 2 * (12 + 40)  # dictionary (d, q) and codes (q, k)
    assert large[SHARED]["state_mib"] == pytest.approx(4 * numbers / 2**20, rel=0.05)
    assert large[HEAD]["state_mib"] == pytest.approx(4 * 40 * 13 / 2**20)
    assert record["ratio"] is None  # of other k


@pytest.mark.parametrize("k", [5, 40])
def test_a_batch_has_as_many_samples_of_each_of_its_classes(k: int) -> None:
    turns = Turns(SMALL, k, CPU)
    seen = set()
    for _ in range(4):
        turns.next()
        counts = torch.bincount(turns.labels, minlength=k)
        assert int((counts > 0).sum()) == SMALL.present(k)
        assert int(counts.max()) == turns.largest_class
        assert torch.allclose(turns.z.norm(dim=1), torch.ones(32))
        seen.add(tuple(turns.labels.tolist()))
    assert len(seen) == 4


def test_what_is_timed_is_the_loss_s_gradient() -> None:
    turns = Turns(SMALL, 40, CPU)
    turns.next()
    for name in (EXACT, SOFT, BLOCK, SHARED, HEAD):
        CONTENDERS[name].make(turns).job(turns)()
        assert turns.z.grad is not None
        assert turns.z.grad.norm() > 0, name
    CONTENDERS[EXACT].make(turns).job(turns)()
    found = turns.z.grad.clone()
    turns.z.grad = None
    MCR2Loss(40, max_gradient=None)(turns.z, turns.labels).backward()
    assert torch.allclose(found, turns.z.grad, atol=1e-5)


def test_the_table_shows_them(record: dict[str, Any]) -> None:
    lines = bench.table(record).splitlines()
    times = [figure(record["results"][1]["contenders"][name]["step"]) for name in CONTENDERS]
    assert f"| 40 | {' | '.join(times)} |" in lines
    assert lines[2].startswith("| k | exact MCR², ms | ")
    assert not any("left out" in line for line in lines)


def test_what_would_take_too_long_or_too_much_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "MOST_SECONDS", {"cpu": 1e-9})
    record = bench.run(CPU, budget=0.0, classes=(5, 40), shape=SMALL)
    assert all("step" in row for row in record["results"][0]["contenders"].values())
    assert all("would grow to about" in row["left_out"] for row in record["results"][1]["contenders"].values())
    text = bench.table(record)
    assert "| 40 | – | – | – | – | – |" in text
    assert f"- {SHARED} is left out from k = 40 on: from k = 5 on a step would grow to about 0 s." in text
    limits = bench.Limits(CPU)
    limits.seconds, limits.bytes = 1.0, 2.0**30
    limits.measured(SHARED, 100, 0.01, 2.0**28)
    assert limits.reason(SHARED, CONTENDERS[SHARED], 150) is None
    why = "from k = 100 on it would grow to about 2 GiB, and 1 GiB are free for it"
    assert limits.reason(SHARED, CONTENDERS[SHARED], 300) == why
    assert limits.reason(BLOCK, CONTENDERS[BLOCK], 10**6) is None  # nothing is known of it


def test_one_that_fails_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(turns: Turns) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setitem(CONTENDERS, SHARED, CONTENDERS[SHARED]._replace(make=broken))
    record = bench.run(CPU, budget=0.0, classes=(5,), shape=SMALL)
    rows = record["results"][0]["contenders"]
    assert rows[SHARED] == {"failed": "RuntimeError: out of memory"}
    assert rows[BLOCK]["step"]["median_ms"] > 0
    assert f"- {SHARED} is left out from k = 5 on: RuntimeError: out of memory." in bench.table(record)


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks/results").glob("scale-*.json")), ids=lambda p: p.stem)
def test_the_readme_holds_the_table_of_the_raw_figures(path: Path) -> None:
    assert bench.table(json.loads(path.read_text())) in (ROOT / "benchmarks/README.md").read_text()


def test_the_ratio_is_that_of_the_claim(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "RATIO", (5, 40))
    first, second = (result["contenders"][BLOCK]["step"]["median_ms"] for result in record["results"])
    assert bench._ratio(record) == pytest.approx(second / first)
