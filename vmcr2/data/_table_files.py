"""Opens a table of any of the known formats, and finds its label column."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from .._shared import did_you_mean, listed
from ._array_files import read_inputs, read_npy, read_npz
from ._columns import Column, as_columns, refuse_infinite
from ._csv import read_csv
from ._errors import DataError
from ._parquet import read_parquet
from ._regular import check_regular

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".npz", ".npy")
"""Of files that :func:`from_table` reads."""
_USUAL_LABELS = ("label", "class", "target", "y", "species")


class Rows(NamedTuple):
    """Inputs and their labels."""

    columns: Mapping[str, Column]
    labels: Column

    def __len__(self) -> int:
        return len(self.labels)


class TableFile(NamedTuple):
    """What a file holds."""

    parts: Mapping[str, Rows]
    """by "train", "val" and "test"; "train" alone where the file has no split"""
    label: str
    labels_are: str
    """the labels in an error: "the column kind of things.csv" """
    notes: tuple[str, ...]


def read_table(path: Path | str, label: str | None = None, as_text: Collection[str] = ()) -> TableFile:
    """The table of a file. Columns ``as_text`` stay texts, where the format does not say what they are."""
    file = table_path(path)
    suffix = file.suffix.lower()
    if suffix in (".npy", ".npz"):
        found = (read_npy if suffix == ".npy" else read_npz)(file, label)
        parts = {}
        for part, (inputs, labels) in found.parts.items():
            refuse_empty(len(labels), file)
            parts[part] = Rows(as_columns(inputs), as_columns({found.label: labels})[found.label])
            refuse_infinite(parts[part].columns, str(file))
        what = f"the {'column' if suffix == '.npy' else 'array'} {found.label} of {file}"
        return TableFile(parts, found.label, what, found.notes)
    notes: list[str] = []
    if suffix == ".parquet":
        columns = read_parquet(file)
    else:
        columns, notes = read_csv(file, as_text)
    name = _label(columns, label, file, notes)
    inputs_alone = {key: column for key, column in columns.items() if key != name}
    if not inputs_alone:
        raise DataError(f"{file} has no column beside the label {name}: add columns to learn from")
    refuse_infinite(inputs_alone, str(file))
    parts = {"train": Rows(inputs_alone, columns[name])}
    return TableFile(parts, name, f"the column {name} of {file}", tuple(notes))


def read_columns(path: Path | str, as_text: Collection[str] = ()) -> dict[str, Column]:
    """All columns of a file, for a run that was trained on a table: labels, if there are any, are columns too."""
    file = table_path(path)
    suffix = file.suffix.lower()
    if suffix in (".npy", ".npz"):
        columns = as_columns(read_inputs(file))
    elif suffix == ".parquet":
        columns = read_parquet(file)
    else:
        columns, _ = read_csv(file, as_text)
    refuse_empty(len(next(iter(columns.values()))), file)
    return columns


def table_path(path: Path | str) -> Path:
    """The file, resolved; an error if it is not one of the known formats."""
    text = str(path)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", text):
        raise DataError(f"{text} is an address, and vmcr2 downloads nothing: download the file and give its path")
    file = Path(text).expanduser()
    if file.is_dir():
        raise DataError(f"{file} is a folder, not a table: give one file ({', '.join(TABLE_SUFFIXES)})")
    if not file.exists():
        raise DataError(f"{file} does not exist: correct the path")
    if file.suffix.lower() not in TABLE_SUFFIXES:
        raise DataError(f"{file} is no table that can be read: save it as one of {', '.join(TABLE_SUFFIXES)}")
    check_regular(file)
    return file.resolve()


def refuse_empty(rows: int, where: Path | str) -> None:
    """An error if there are no rows."""
    if not rows:
        raise DataError(f"{where} has no rows: add some")


def _label(columns: Iterable[str], label: str | None, file: Path, notes: list[str]) -> str:
    names = list(columns)
    if label is not None:
        if label in names:
            return label
        unnamed = names == [str(at) for at in range(len(names))]
        # columns without names: a number may count from the end, as in a .npy file
        if unnamed and re.fullmatch(r"-\d+", label) and int(label) >= -len(names):
            return names[int(label)]
        hint = did_you_mean(label, names) or f": the columns are {listed(names, 20)}"
        raise DataError(f"{file} has no column {label or repr(label)}{hint}")
    usual = [name for name in names if name.lower() in _USUAL_LABELS]
    if len(usual) == 1:
        notes.append(f"The labels are the column {usual[0]}: choose another with --label COLUMN.")
        return usual[0]
    why = f"the columns {' and '.join(usual)} may both have them" if usual else "no column is called label or class"
    raise DataError(
        f"{file} does not say which column has the classes ({why}): give --label COLUMN, one of {listed(names, 20)}"
    )
