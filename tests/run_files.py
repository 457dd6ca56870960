"""What tests read back from run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor, equal

from vmcr2.runs import Run, RunFolder, read_record
from vmcr2.runs._records import write_record


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
    return RunFolder(folder).read_metrics()


def rewrite(path: Path, **changes: Any) -> None:
    """Change a JSON file of a run as another program would have written it: with the right checksum."""
    write_record(path, read_record(path) | changes)


def without_clocks(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics, without what depends on the machine's speed."""
    clocks = {"seconds", "images_per_second"}
    return [{name: value for name, value in line.items() if name not in clocks} for line in metrics(folder)]


def timeless(run: Run) -> dict[str, Any]:
    """The summary, likewise."""
    return {name: value for name, value in run.summary.items() if name != "seconds"}
