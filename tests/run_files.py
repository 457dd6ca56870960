"""What tests read back from run folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, equal

from vmcr2.runs import Run


def weights(folder: Path) -> dict[str, Tensor]:
    """Of the network, and what the objective learned."""
    found = load_file(folder / "model.safetensors")
    if (folder / "objective.safetensors").exists():
        found |= {f"objective.{name}": value for name, value in load_file(folder / "objective.safetensors").items()}
    return found


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def without_clocks(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics, without what depends on the machine's speed."""
    clocks = {"seconds", "images_per_second"}
    return [{name: value for name, value in line.items() if name not in clocks} for line in metrics(folder)]


def timeless(run: Run) -> dict[str, Any]:
    """The summary, likewise."""
    return {name: value for name, value in run.summary.items() if name != "seconds"}
