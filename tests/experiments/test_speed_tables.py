"""Every speed table is what its record says: written by one command, never by hand."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from experiments import speed


@pytest.mark.parametrize("path", speed.PAGES, ids=lambda path: str(path.relative_to(speed.ROOT)))
def test_the_pages_hold_the_tables_of_the_records(path: Path) -> None:
    page = path.read_text()
    assert speed.written(page, speed.PAGES[path]) == page, "run python -m experiments.speed"


def test_plain_and_carried_exact_rows_are_named_apart() -> None:
    header, _, *rows = speed.epochs().splitlines()[:6]
    columns = [cell.strip() for cell in header.split("|")]
    plain, carried = columns.index("MCR², exact, plain"), columns.index("MCR², exact, 40,000 rows carried")
    cells = {row.split("|")[1].split(",")[0].strip(): [cell.strip() for cell in row.split("|")] for row in rows}
    measured = {
        (row["data"], row["contender"]): row["seconds_per_epoch"] for row in speed.record_of("epoch-h200")["results"]
    }
    for name, column in (("plain", plain), ("40,000 rows carried", carried)):
        seconds = measured.get(("cifar100", f"MCR², exact, {name}"))
        assert cells["CIFAR-100"][column] == (speed.NOT_MEASURED if seconds is None else f"{seconds:.3f}")


def test_a_row_that_was_not_measured_says_so() -> None:
    record = copy.deepcopy(speed.record_of("epoch-h200"))
    record["results"] = [row for row in record["results"] if row["data"] != "cifar10"]
    (row,) = [line for line in speed.epochs(record).splitlines() if line.startswith("| CIFAR-10,")]
    assert row.count(speed.NOT_MEASURED) == 5
    assert "| 33.06 | 20.71 |" in row


@pytest.mark.parametrize(
    ("ratio", "larger_is_better", "words"),
    [
        (15.34, True, "15.3× faster"),
        (0.5, True, "2.0× slower"),
        (0.5, False, "2.0× faster"),
        (3.0, False, "3.0× slower"),
        (None, True, "–"),
    ],
)
def test_ratios_in_words(ratio: float | None, larger_is_better: bool, words: str) -> None:
    assert speed.in_words(ratio, larger_is_better) == words
