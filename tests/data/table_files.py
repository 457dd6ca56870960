"""Small tables for tests, written as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def people(rows: int = 60, seed: int = 0) -> dict[str, list[Any]]:
    """Numbers, text, booleans, an id, a date, a constant, gaps; the class depends on age and colour."""
    rng = np.random.default_rng(seed)
    age = rng.normal(40, 12, rows).round(1)
    colour = rng.choice(["red", "green", "blue"], rows)
    old = (age + 10 * (colour == "red")) > 42
    return {
        "name": [f"person {at}" for at in range(rows)],
        "age": [None if at % 10 == 3 else float(value) for at, value in enumerate(age)],
        "colour": [None if at % 15 == 7 else str(value) for at, value in enumerate(colour)],
        "smoker": [bool(value) for value in rng.random(rows) < 0.4],
        "born": [f"19{at % 80 + 10}-0{at % 9 + 1}-11" for at in range(rows)],
        "planet": ["Earth"] * rows,
        "income": [int(value) for value in rng.integers(10, 90, rows) * 100],
        "group": ["old" if value else "young" for value in old],
    }


def write_csv(
    path: Path,
    columns: Mapping[str, Sequence[Any]],
    *,
    delimiter: str = ",",
    names: bool = True,
    encoding: str = "utf-8",
) -> Path:
    """The columns as text; None is an empty cell."""
    rows = zip(*columns.values(), strict=True)
    lines = [delimiter.join("" if cell is None else str(cell) for cell in row) for row in rows]
    path.write_text("\n".join([*([delimiter.join(columns)] if names else []), *lines]) + "\n", encoding=encoding)
    return path
