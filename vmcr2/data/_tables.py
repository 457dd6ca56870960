"""A person's own table as a data set: read, split, prepared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._shared import listed
from ._classes import class_names_of, class_numbers, class_texts, held_out, rare_notes
from ._columns import Column
from ._errors import DataError
from ._in_memory import MemoryReader
from ._preparation import Preparation
from ._source import Source
from ._split import Part, Split
from ._table_files import Rows, read_table, table_path


class Labelled(NamedTuple):
    """Rows whose classes are known, with the classes' numbers."""

    columns: Mapping[str, Column]
    labels: Tensor


class SplitTable(NamedTuple):
    """A table that is read and split, before it is prepared."""

    parts: Mapping[Part, Labelled]
    class_names: tuple[str, ...]
    label: str
    notes: tuple[str, ...]


def from_table(
    path: Path | str,
    label: str | None = None,
    *,
    test: Path | str | None = None,
    test_share: float = 0.2,
    split_seed: int = 0,
) -> Source:
    """A table of rows as a data set: .csv, .tsv, .parquet, .npz or .npy.

    Numbers are standardised, text becomes columns of 0 and 1, missing values are filled; the source's ``notes`` say
    what was done. All of it is learned from the training rows alone, and kept in the source's ``preparation``.

    Args:
        path: the file.
        label: the column that has the classes. None takes the one that is called label, class, target, y or species.
            Of a .npy file: the number of a column, the last one by default. Of a .npz file: the name of an array.
        test: a file of the test rows, with the same columns. None takes a share of the rows of every class.
        test_share: this share.
        split_seed: another number chooses other rows.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> rows = [f"{n},{'red' if n % 3 else 'blue'},{'big' if n > 9 else 'small'}" for n in range(20)]
    >>> _ = (folder / "things.csv").write_text(chr(10).join(["size,colour,kind", *rows]))
    >>> things = from_table(folder / "things.csv", "kind")
    >>> things.class_names, things.sample_shape, len(things.train().labels), len(things.test().labels)
    (('big', 'small'), (3,), 16, 4)
    """
    file = table_path(path)
    table = split_table(file, label, test=test, test_share=test_share, split_seed=split_seed)
    made, splits = _prepared(table, file, file if test is None else table_path(test))
    settings = {
        "data": "table",
        "data_path": str(file),
        "label": table.label,
        "test_path": None if test is None else str(table_path(test)),
        "test_share": test_share,
        "split_seed": split_seed,
    }
    return Source(
        "table",
        file,
        table.class_names,
        MemoryReader(splits, table.class_names, (len(made.columns),), file),
        title=file.stem,
        settings=settings,
        notes=(*table.notes, *made.notes),
        preparation=made.to_json_dict(),
    )


def _prepared(table: SplitTable, file: Path, test: Path) -> tuple[Preparation, dict[Part, Split]]:
    """What the training rows teach, and all rows as numbers; errors name the file."""
    where, splits = file, {}
    try:
        made = Preparation.fit(table.parts["train"].columns)
        for part, rows in table.parts.items():
            where = test if part == "test" else file
            splits[part] = Split(torch.from_numpy(made.transform(rows.columns)), rows.labels)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    return made, splits


def split_table(
    file: Path, label: str | None, *, test: Path | str | None, test_share: float, split_seed: int
) -> SplitTable:
    """Read a table, number its classes, and split it."""
    found = read_table(file, label)
    notes = list(found.notes)
    what = found.labels_are
    rows, texts = _with_label(found.parts["train"], what, str(file), notes)
    names = class_names_of(texts, what)
    train = Labelled(rows, class_numbers(texts, names, what))
    others = {part: (rows, str(file)) for part, rows in found.parts.items() if part != "train"}
    if test is not None:
        if "test" in others:
            raise DataError(
                f"{file} has test rows already: leave out the test file, or save x_train and y_train as x, y"
            )
        others["test"] = (_test_file(found.parts["train"], found.label, file, table_path(test)), str(table_path(test)))
    parts: dict[Part, Labelled] = {"train": train}
    for part, (given, where) in others.items():
        kept, texts = _with_label(given, found.labels_are.replace(str(file), where), where, notes)
        labels = class_numbers(texts, names, f"the {part} set of {where}" if where == str(file) else where)
        parts["val" if part == "val" else "test"] = Labelled(kept, labels)
    if "test" in parts:
        counts = [f"{len(parts[part].labels)} {word}" for part, word in _WORDS.items() if part in parts]
        notes.append(f"{' and '.join(counts)}, as given.")
    else:
        held = held_out(train.labels, len(names), test_share, split_seed)
        parts |= {"train": _taken(train, ~held), "test": _taken(train, held)}
        notes.append(
            f"{int((~held).sum())} rows to train and {int(held.sum())} to test, drawn from each class "
            f"(test_share {test_share:g}, split_seed {split_seed})."
        )
    notes += rare_notes(parts["train"].labels, parts["test"].labels, names)
    return SplitTable(parts, names, found.label, tuple(notes))


_WORDS: dict[Part, str] = {"train": "rows to train", "val": "to validate", "test": "to test"}


def _test_file(train: Rows, label: str, file: Path, test: Path) -> Rows:
    """The rows of the test file, whose columns must be the same in any order."""
    texts = [name for name, column in train.columns.items() if column.values.dtype == object]
    wanted = None if test.suffix.lower() == ".npz" else label  # an archive finds its own labels
    found = read_table(test, wanted, as_text=texts).parts["train"]
    absent = [name for name in train.columns if name not in found.columns]
    added = [name for name in found.columns if name not in train.columns]
    if absent or added:
        wrong = [f"lacks the column {listed(absent)}"] if absent else []
        wrong += [f"has the column {listed(added)} too"] if added else []
        raise DataError(f"the test file {test} {' and '.join(wrong)}: give it the columns of {file}")
    columns = {name: found.columns[name] for name in train.columns}
    return Rows(columns, found.labels)


def _with_label(rows: Rows, what: str, where: str, notes: list[str]) -> tuple[dict[str, Column], list[str]]:
    """The rows that have a class, and their classes."""
    texts = class_texts(rows.labels, what)
    known: NDArray[Any] = np.array([text is not None for text in texts], dtype=np.bool_)
    if not known.any():
        raise DataError(f"{what} is empty in every row: name the column that has the classes")
    if not known.all():
        notes.append(f"Left out {int((~known).sum())} of {len(known)} rows of {where} that have no label.")
    return {name: column[known] for name, column in rows.columns.items()}, texts[known].tolist()


def _taken(rows: Labelled, chosen: Tensor) -> Labelled:
    mask = chosen.numpy()
    return Labelled({name: column[mask] for name, column in rows.columns.items()}, rows.labels[chosen])
