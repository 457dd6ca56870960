"""The bytes that processes send are those of the documents' arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from benchmarks.ranks import SIZES, Size, arithmetic, latching, measure, table

ROOT = Path(__file__).parents[2]


def check(row: dict[str, Any], size: Size) -> None:
    """Gloo's own headers come on top: at most 1 % in the record, of less than 1 MB a step."""
    expected = sum(arithmetic(size, row["objective"]).values())
    assert expected <= row["sent"] < 1.02 * expected + 4000
    assert latching(size) <= row["latching"] < 1.02 * latching(size) + 4000


def test_the_documents_show_the_record() -> None:
    record = json.loads((ROOT / "benchmarks/results/ranks-cpu.json").read_text())
    assert table(record) in (ROOT / "docs/scaling.md").read_text(), "python benchmarks/ranks.py --table FILE prints it"
    for row, size in zip(record["results"], SIZES, strict=True):
        check(row, size)


@pytest.mark.skipif(not (Path("/proc/self/io").exists() and dist.is_available()), reason="counts bytes as Linux does")
@pytest.mark.parametrize("objective", ["ce+vmcr2"])
def test_a_step_sends_what_the_arithmetic_says(objective: str) -> None:
    size = Size(m=301, d=64, k=20, s=2, ranks=2)
    check(measure(size, objective), size)
