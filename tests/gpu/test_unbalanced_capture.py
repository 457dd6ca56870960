"""Classes that are far larger than others, in a captured step: room for the largest."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from unbalanced_digits import UnbalancedDigits

from vmcr2.data import Source
from vmcr2.runs import Run, fit, recipe

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("objective", "settings"),
    [("vmcr2", {}), ("mcr2", {}), ("mcr2", {"memory": 300}), ("vmcr2", {"samples_per_class": 75})],
)
def test_it_trains_what_a_cpu_does(objective: str, settings: dict[str, Any], tmp_path: Path) -> None:
    def trained(device: str) -> Run:
        config = recipe("digits", objective=objective, epochs=5, batch_size=150, precision="float32", **settings)
        return fit(config.replace(device=device), out=tmp_path / device, source=cast(Source, UnbalancedDigits()))

    on_cpu, on_gpu = trained("cpu"), trained("cuda")
    assert on_gpu.summary["train_delta_r"] == pytest.approx(on_cpu.summary["train_delta_r"], rel=0.03)
    assert on_gpu.summary["batch_delta_r"] == pytest.approx(on_cpu.summary["batch_delta_r"], rel=0.03)
