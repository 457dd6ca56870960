"""The finished search for the recipes, as data: every run is a line of STUDY.jsonl here. README.md has more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]
_FOLDER = Path(__file__).parent


def studies() -> list[str]:
    """The names of all studies."""
    return sorted(path.stem for path in _FOLDER.glob("*.jsonl"))


def read(study: str) -> list[Line]:
    """The lines of a study, in the order in which its runs ended."""
    return [json.loads(line) for line in (_FOLDER / f"{study}.jsonl").read_text().splitlines()]


def held_out(line: Line) -> float:
    """The hold-out accuracy to compare by: of the head for cross-entropy, of the nearest subspace for the others."""
    accuracy: float = line["head_accuracy" if "head_accuracy" in line else "holdout_accuracy"]
    return accuracy
