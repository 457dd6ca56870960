"""Every speed table is what its record says: written by one command, never by hand."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from experiments import speed
from vmcr2.bench import epoch


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


def newer(record: speed.Record) -> speed.Record:
    """The committed record with what older ones do not have, whether it has that already or not."""
    record = copy.deepcopy(record)
    record["results"] = [row for row in record["results"] if row["data"] != "cifar100-preact"]
    (plain,) = [row for row in record["results"] if (row["data"], row["contender"]) == ("cifar100", "CE")]
    for title, seconds in (("CE", 0.25), ("V-MCR² with R(z)", 0.3125)):
        record["results"].append(
            plain | {"data": "cifar100-preact", "contender": title, "seconds_per_epoch": seconds, "peak_mib": 8000.0}
        )
    record["first_step"] = [
        {"data": "cifar100", "contender": "CE", "seconds": 3.21, "seconds_on_a_new_machine": 9.87, "peak_mib": 4000.0},
        {"data": "cifar100", "contender": "V-MCR² with R(z)", "failed": "no room"},
    ]
    record["real_run"] = [
        {
            **{"data": "tiny-imagenet", "contender": "CE", "images_per_second": 480_000.0, "slowest": 470_000.0},
            **{"fastest": 490_000.0, "bench_images_per_second": 5e5, "ratio": 0.96, "epochs": 11, "peak_mib": 6000.0},
        }
    ]
    return record


def older(record: speed.Record) -> speed.Record:
    """The committed record as one was before PreAct ResNet-18, first steps and real runs were measured."""
    kept = {name: value for name, value in record.items() if name not in ("first_step", "real_run")}
    return kept | {"results": [row for row in record["results"] if row["data"] != "cifar100-preact"]}


def test_preact_resnet_is_a_row_where_it_was_measured() -> None:
    record = speed.record_of("epoch-h200")
    (row,) = [line for line in speed.epochs(newer(record)).splitlines() if "PreAct" in line]
    assert row == "| CIFAR-100 with PreAct ResNet-18, batch 2000, d 500 | 0.250 | – | – | – | 0.312 | – | – |"
    assert "PreAct" not in speed.epochs(older(record))


def test_first_steps_and_real_runs_are_in_both_pages_where_they_were_measured() -> None:
    record = speed.record_of("epoch-h200")
    readme, page = speed.epochs(newer(record)), epoch.table(newer(record))
    assert "on CIFAR-100 ends 3.2 s (CE) after `import torch`" in readme
    assert "trains at 0.96 (CE) of the speed in this table" in readme
    assert "| cifar100 | CE | 3.21 | 9.87 | 4000 |" in page
    assert "| cifar100 | V-MCR² with R(z) | no room | – | – |" in page
    assert "| tiny-imagenet | CE | 480,000 (470,000–490,000) | 500,000 | 0.96 | 6000 |" in page
    for text in (speed.epochs(older(record)), epoch.table(older(record))):
        assert "import torch" not in text
        assert "real run" not in text


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
