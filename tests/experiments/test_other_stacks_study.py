"""The figures of docs/other-stacks.md come from a saved result, and this from the examples."""

from __future__ import annotations

import json
from pathlib import Path

from experiments import other_stacks as study

PAGE = Path(__file__).parents[2] / "docs/other-stacks.md"


def test_the_documents_show_its_lines() -> None:
    text = " ".join(PAGE.read_text().split())
    found = json.loads((study.RESULTS / study.FILE).read_text())
    lines = study.lines(found)
    assert len(lines) == 3 + 2 + 6 + 3
    for line in lines:
        assert " ".join(line.split()) in text, "python -m experiments.other_stacks --lines prints them"
    for name, seeds in study.SEEDS.items():
        assert len(found[name]) == seeds


def test_in_parts_with_one_loss_or_by_the_usual_accumulation() -> None:
    """Over seeds 0 to 5: the usual accumulation differs by 0.025 to 0.08, another number of parts by at most 3e-6."""
    case = study.Large(parts=4, steps=3, rate=1e-3)
    usual, whole = (study.large((case, usual, 0)) for usual in (True, False))
    assert abs(usual - whole) > 0.005
    assert abs(study.large((case._replace(parts=1), False, 0)) - whole) < 1e-3
