"""`bench latch`: what is timed is latching, and the table shows what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from vmcr2.bench import latch as bench
from vmcr2.bench._measure import figure

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[2]
MANY = bench.LatchSize(600, 40, 10, 3, with_eigh=True)
FEW = bench.LatchSize(100, 40, 10, 3)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return bench.run(CPU, least=3, sizes=[MANY, FEW])


def test_the_record_holds_measured_values(record: dict[str, Any]) -> None:
    assert record == json.loads(json.dumps(record))
    many, few = record["results"]
    for result in (many, few):
        times = result[bench.LATCH]
        assert 0 < times["lower_quartile_ms"] <= times["median_ms"] <= times["upper_quartile_ms"]
        assert times["runs"] == 3
        assert result["peak_mib"] > 0
    assert many["eigh_ms"] > 0
    assert 0.97 < many["energy_of_eigh"] <= 1.0001
    assert "eigh_ms" not in few


def test_the_features_are_of_classes() -> None:
    z, labels = bench.features_for(MANY, CPU)
    assert torch.allclose(z.norm(dim=1), torch.ones(600))
    assert len(labels.unique()) == 10
    _, codes = bench.latch(z, labels, 10, atoms_per_class=3)
    assert codes.sum(0).mean() > 0.5  # three directions of forty hold most of a class


def test_the_table_shows_them(record: dict[str, Any]) -> None:
    lines = bench.table(record).splitlines()
    first = record["results"][0]
    assert f"| 600, 40, 10, 3 | {figure(first[bench.LATCH])} | {first['peak_mib']:.0f} |" in lines[-2]
    assert lines[-2].endswith(f"| {first['eigh_ms']:.0f} ({100 * first['energy_of_eigh']:.2f} %) |")
    assert lines[-1].startswith(f"| 100, 40, 10, 3 | {figure(record['results'][1][bench.LATCH])} |")
    assert lines[-1].endswith("| – |")


def test_a_size_that_fails_leaves_the_rest(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    true_latch = bench.latch

    def broken(z: torch.Tensor, *args: Any, **options: Any) -> Any:
        if len(z) == 600:
            raise RuntimeError("out of memory")
        return true_latch(z, *args, **options)

    monkeypatch.setattr(bench, "latch", broken)
    results = [bench.measure(size, CPU, 1) for size in (MANY, FEW)]
    assert results[0]["failed"] == "RuntimeError: out of memory"
    assert results[1][bench.LATCH]["median_ms"] > 0
    assert "| failed: RuntimeError: out of memory | – |" in bench.table(record | {"results": results})


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks/results").glob("latch-*.json")), ids=lambda p: p.stem)
def test_the_readme_holds_the_table_of_the_raw_figures(path: Path) -> None:
    assert bench.table(json.loads(path.read_text())) in (ROOT / "benchmarks/README.md").read_text()
