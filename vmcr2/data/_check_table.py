"""A look at a table before anybody trains on it: sizes, classes, gaps, useless columns, rows that stand twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from .._shared import listed
from ._columns import Column
from ._errors import DataError
from ._findings import Findings
from ._preparation import Preparation
from ._split import Part
from ._table_files import table_path
from ._tables import SplitTable, split_table

_MANY_CLASSES = 50
_UNEVEN = 10  # times that the largest class may be larger than the smallest without remark
_WORDS = {"number": "numbers", "boolean": "true or false", "text": "text", "date": "dates", "other": "other"}


def check_table(path: Path | str, label: str | None = None) -> Findings:
    """What a table holds, and what is wrong with it, as :func:`from_table` would read and split it. Writes nothing.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "things.csv"
    >>> _ = file.write_text("size,kind" + "".join(f"{chr(10)}{n},{'big' if n > 9 else 'small'}" for n in range(20)))
    >>> found = check_table(file, "kind")
    >>> found.title, dict(found.rows)["classes"], found.problems
    ('things', '2: big 10, small 10', ())
    """
    file = table_path(path)
    table = split_table(file, label, test=None, test_share=0.2, split_seed=0)
    problems: list[str] = []
    try:
        made = Preparation.fit(table.parts["train"].columns)
        outputs, left_out = str(len(made.columns)), dict(made.left_out)
    except DataError as error:
        outputs, left_out = "0", {}
        problems.append(f"{file}: {error}.")
    rows = [
        ("rows", _sizes(table)),
        ("label", table.label),
        ("classes", _classes(table, problems)),
        ("columns", _kinds(table)),
        ("columns after preparation", outputs),
        ("missing values", _gaps(table)),
        ("constant columns", _left(left_out, "constant", "no values")),
        ("id-like columns", _left(left_out, "an id", "text with")),
        ("other columns left out", _others(left_out)),
        ("rows that stand twice", _twins(table, file, problems)),
    ]
    problems += _column_problems(table, left_out, file)
    notes = [note for note in table.notes if note.startswith(("Left out", "Only one", "No test row"))]
    return Findings(file.stem, tuple(rows), (*notes, *problems))


def _sizes(table: SplitTable) -> str:
    words = {"train": "to train", "val": "to validate", "test": "to test"}
    sizes = [f"{len(rows.labels)} {words[part]}" for part, rows in table.parts.items()]
    return f"{_total(table)} ({', '.join(sizes)})"


def _total(table: SplitTable) -> int:
    return sum(len(rows.labels) for rows in table.parts.values())


def _classes(table: SplitTable, problems: list[str]) -> str:
    labels = torch.cat([rows.labels for rows in table.parts.values()])
    sizes = Counter(dict(zip(table.class_names, torch.bincount(labels).tolist(), strict=True)))
    (most, high), (least, low) = sizes.most_common()[0], sizes.most_common()[-1]
    if high > _UNEVEN * low:
        problems.append(
            f"The classes are uneven: {most} has {high} rows, {least} has {low}; "
            "look at the accuracy of each class, not at the overall one."
        )
    if len(sizes) > _MANY_CLASSES and all(name.lstrip("-").isdigit() for name in sizes):
        problems.append(
            f"The label {table.label} has {len(sizes)} different whole numbers: if it is a quantity, choose another "
            "column, or write ranges of it as names."
        )
    return f"{len(sizes)}: {listed((f'{name} {size}' for name, size in sizes.items()), 10)}"


def _kinds(table: SplitTable) -> str:
    columns = table.parts["train"].columns.values()
    counts = Counter(_WORDS[column.kind] for column in columns)
    return f"{len(columns)}: {', '.join(f'{count} {kind}' for kind, count in counts.most_common())}"


def _gaps(table: SplitTable) -> str:
    gaps: Counter[str] = Counter()
    for rows in table.parts.values():
        gaps.update({name: int(column.missing.sum()) for name, column in rows.columns.items()})
    found = [(name, count) for name, count in gaps.most_common() if count]
    where = listed(f"{name} {count}" for name, count in found)
    return f"{sum(count for _, count in found)}: {where}" if found else "0"


def _left(left_out: dict[str, str], *reasons: str) -> str:
    names = [name for name, reason in left_out.items() if reason.startswith(reasons)]
    return f"{len(names)}: {listed(names)}" if names else "0"


def _others(left_out: dict[str, str]) -> str:
    known = ("constant", "no values", "an id", "text with")
    others = [f"{name} ({reason})" for name, reason in left_out.items() if not reason.startswith(known)]
    return f"{len(others)}: {listed(others)}" if others else "0"


def _keys(table: SplitTable) -> dict[Part, list[bytes]]:
    """A key for every row: its values, without its class. A missing value equals a missing value."""
    codes: dict[object, float] = {None: -1.0}  # one number for every different text
    found: dict[Part, list[bytes]] = {}
    for part, rows in table.parts.items():
        columns = []
        for column in rows.columns.values():
            if column.values.dtype == object:
                columns.append(np.array([codes.setdefault(text, float(len(codes))) for text in column.values]))
            else:  # one kind of NaN and of zero, because bytes are compared
                columns.append(np.where(column.missing, np.nan, column.values) + 0.0)
        found[part] = [row.tobytes() for row in np.stack(columns, axis=1)]
    return found


def _twins(table: SplitTable, file: Path, problems: list[str]) -> str:
    """How many rows have the same values as another one before them; problems where this spoils a measurement."""
    keys = _keys(table)
    classes: dict[bytes, set[int]] = {}
    for part, rows in table.parts.items():
        for key, label in zip(keys[part], rows.labels.tolist(), strict=True):
            classes.setdefault(key, set()).add(label)
    twice = _total(table) - len(classes)
    known = set(keys["train"])
    for part in keys:
        shared = sum(key in known for key in keys[part]) if part != "train" else 0
        if shared:
            problems.append(
                f"{shared} of {len(keys[part])} {part} rows of {file} also stand in the training rows: "
                "remove the copies, or the accuracy is too good."
            )
    torn = sum(len(found) > 1 for found in classes.values())
    if torn:
        problems.append(
            f"{torn} sets of equal rows of {file} have more than one class: no network can tell them apart."
        )
    return str(twice)


def _column_problems(table: SplitTable, left_out: dict[str, str], file: Path) -> Iterator[str]:
    train = table.parts["train"]
    for name, reason in left_out.items():
        if " numbers, but also text" in reason:
            yield f"The column {name} of {file} has {reason}: correct it, or it is left out."
    counters = [name for name, column in train.columns.items() if name not in left_out and _counts(column)]
    if counters:
        yield (
            f"The column {listed(counters)} of {file} counts the rows up: remove it if it is a row number, because the "
            "order of rows may show their class."
        )


def _counts(column: Column) -> bool:
    """Whether whole numbers rise from row to row by little more than one; the test rows leave gaps."""
    if column.kind != "number" or len(column) < 20 or column.missing.any():
        return False
    steps = np.diff(column.values)
    whole = bool((column.values == np.floor(column.values)).all())
    return whole and bool((steps > 0).all()) and float(steps.mean()) < 1.5
