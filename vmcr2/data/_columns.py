"""Columns of a table: what kind of values a column has, as numbers or texts, whatever it was given as."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._shared import listed
from ._errors import DataError

Kind = Literal["number", "boolean", "text", "date", "other"]
MISSING = frozenset({"", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null"})
"""Texts that stand for a missing value."""
MOST_COLUMNS = 1_000_000
"""Of a table."""
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_TRUTH = {"true": 1.0, "false": 0.0}
_TIME = r"([ T]\d{1,2}:\d{2}.*)?"
_DATE = re.compile(rf"(\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}){_TIME}")


@dataclass(frozen=True)
class Column:
    """Values of one kind."""

    kind: Kind
    values: NDArray[Any]
    """numbers and booleans: float64, NaN where missing; else objects: texts, None where missing"""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which values are missing."""
        if self.values.dtype == object:
            return np.fromiter((value is None for value in self.values), dtype=np.bool_, count=len(self.values))
        return np.asarray(np.isnan(self.values))

    def __getitem__(self, rows: NDArray[Any]) -> Column:
        return Column(self.kind, self.values[rows])

    def texts(self) -> NDArray[Any]:
        """The values as texts, None where missing; whole numbers without a point."""
        if self.values.dtype == object:
            return self.values
        truth = self.kind == "boolean"
        return _objects(
            [None if np.isnan(value) else text_of(bool(value) if truth else value) for value in self.values]
        )


def text_of(value: Any) -> str:
    """A value as a person writes it.

    >>> text_of(2.0), text_of(2.5), text_of(" red ")
    ('2', '2.5', 'red')
    """
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    return str(value).strip()


def array_of(values: Any) -> NDArray[Any]:
    """A tensor or list as an array."""
    if isinstance(values, Tensor):
        plain = values.detach().cpu()
        return np.asarray((plain.float() if plain.dtype == torch.bfloat16 else plain).numpy())  # NumPy has no bfloat16
    return np.asarray(values)


def as_column(values: Any) -> Column:
    """A sequence, an array or a tensor as a column; texts that all are numbers become numbers.

    >>> as_column(["1", "", "2.5"]).values.tolist(), as_column(["red", "?"]).kind
    ([1.0, nan, 2.5], 'text')
    """
    if isinstance(values, Column):
        return values
    if isinstance(values, Tensor):
        values = array_of(values)
    elif hasattr(values, "to_numpy"):  # a pandas Series
        values = values.to_numpy()
    if not isinstance(values, np.ndarray):
        values = _objects(list(values))
    if values.ndim != 1:
        return Column("other", _objects([None] * len(values)))
    code = values.dtype.kind
    if code in "iuf":
        return Column("number", values.astype(np.float64))
    if code == "b":
        return Column("boolean", values.astype(np.float64))
    if code == "M":
        return Column("date", _objects([None if str(value) == "NaT" else str(value) for value in values]))
    if code == "S":
        values = np.char.decode(values, "utf-8", "replace")
    return _from_objects(values.tolist())


def _from_objects(cells: list[Any]) -> Column:
    present = [cell for cell in cells if not _absent(cell)]
    if all(isinstance(cell, str) for cell in present):
        return from_texts([None if _absent(cell) else cell for cell in cells])
    if all(isinstance(cell, bool | np.bool_) for cell in present):
        return Column("boolean", _floats(cells))
    if all(isinstance(cell, Real | Decimal) for cell in present):
        return Column("number", _floats(cells))
    if all(isinstance(cell, date | time | timedelta) for cell in present):
        return Column("date", _objects([None if _absent(cell) else str(cell) for cell in cells]))
    if all(isinstance(cell, str | Real | Decimal) for cell in present):  # 3 beside "4": as in a csv
        return from_texts([None if _absent(cell) else text_of(cell) for cell in cells])
    return Column("other", _objects([None if _absent(cell) else str(cell) for cell in cells]))


def from_texts(cells: Sequence[str | None]) -> Column:
    """Texts as numbers, booleans, dates or texts: whatever all of them are."""
    stripped = [None if cell is None or cell.strip() in MISSING else cell.strip() for cell in cells]
    numbers = numbers_of(stripped)
    if numbers is not None:
        return Column("number", numbers)
    present = {cell for cell in stripped if cell is not None}
    if all(cell.lower() in _TRUTH for cell in present):
        return Column("boolean", _floats([None if cell is None else _TRUTH[cell.lower()] for cell in stripped]))
    kind: Kind = "date" if all(_DATE.fullmatch(cell) for cell in present) else "text"
    return Column(kind, _objects(stripped))


def numbers_of(cells: Sequence[str | None]) -> NDArray[np.float64] | None:
    """Texts as numbers, NaN where missing; None if one of them is something else. Blanks around them do not matter."""
    try:
        try:
            found = list(map(float, cells))  # type: ignore[arg-type]  # None is a TypeError
        except (TypeError, ValueError):  # gaps: slower
            found = [np.nan if cell is None or cell.strip() in MISSING else float(cell) for cell in cells]
    except ValueError:
        return None
    # Python reads 2019_01 as a number, and people mean a text
    if "_" in "".join(filter(None, cells)):
        return None
    return np.array(found, dtype=np.float64)


def as_columns(table: Any, as_text: Collection[str] = ()) -> dict[str, Column]:
    """Named columns of a mapping, a pandas DataFrame, a list of dicts, or an array (names "0", "1", …).

    A mapping has a sequence for each column, or one value for each: then it is one row.
    Columns ``as_text`` stay texts, even if all of them look like numbers: a category "007" is not the number 7.

    >>> sorted(as_columns([{"age": 3, "colour": "red"}, {"age": 4}]))
    ['age', 'colour']
    """
    if isinstance(table, Mapping):
        cells = [_is_cell(table[name]) for name in table]
        if any(cells) and not all(cells):
            alone = listed(str(name) for name, one in zip(table, cells, strict=True) if one)
            raise DataError(f"some columns have one value and no list ({alone}): give every column one per row")
        pairs = [(str(name), [table[name]] if any(cells) else table[name]) for name in table]
    elif hasattr(table, "iloc") and hasattr(table, "columns"):  # pandas, without importing it
        pairs = [(str(name), table.iloc[:, at]) for at, name in enumerate(table.columns)]
    elif isinstance(table, list | tuple) and table and all(isinstance(row, Mapping) for row in table):
        pairs = [
            (str(name), [row.get(name) for row in table]) for name in dict.fromkeys(n for row in table for n in row)
        ]
    else:
        array = array_of(table)
        if array.ndim != 2:
            raise DataError(
                f"rows must be a mapping of columns, a DataFrame, a list of dicts or a 2-D array, got "
                f"{type(table).__name__} with {array.ndim} dimensions: give one row in a list"
            )
        pairs = [(str(at), array[:, at]) for at in range(array.shape[1])]
    refuse_twins([name for name, _ in pairs], "the table")
    columns = {name: _text_column(values) if name in as_text else as_column(values) for name, values in pairs}
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        few, many = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
        raise DataError(
            f"the column {few} has {sizes[few]} values but {many} has {sizes[many]}: give every column one per row"
        )
    return columns


def _is_cell(value: Any) -> bool:
    """Whether it is one value, not a column of them."""
    if isinstance(value, Column):
        return False
    return isinstance(value, str) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0


def _text_column(values: Any) -> Column:
    if isinstance(values, Column) or (isinstance(values, np.ndarray | Tensor) and values.ndim != 1):
        return as_column(values)
    cells = values.tolist() if hasattr(values, "tolist") else list(values)
    return Column("text", _objects([None if _absent(cell) else text_of(cell) for cell in cells]))


def refuse_twins(names: Sequence[str], where: str) -> None:
    """An error if two columns have one name."""
    seen: set[str] = set()
    twins = [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
    if twins:
        raise DataError(
            f"{where} has more than one column with the name {listed(dict.fromkeys(twins))}: give every column its own"
        )


def refuse_infinite(columns: Mapping[str, Column], where: str) -> None:
    """An error that names the row and column of an infinite number."""
    for name, column in columns.items():
        if column.values.dtype == np.float64 and np.isinf(column.values).any():
            row = int(np.isinf(column.values).argmax()) + 1
            raise DataError(
                f"the column {name} of {where} has an infinite number in row {row}: "
                "replace it by a finite one, or leave it empty"
            )


def _absent(cell: Any) -> bool:
    if cell is None:
        return True
    if isinstance(cell, str):
        return cell.strip() in MISSING
    if isinstance(cell, float | np.floating):
        return bool(np.isnan(cell))
    return type(cell).__name__ in ("NAType", "NaTType")  # pandas' own, without importing it


def _floats(cells: Sequence[Any]) -> NDArray[np.float64]:
    return np.array([np.nan if _absent(cell) else float(cell) for cell in cells], dtype=np.float64)


def _objects(cells: Sequence[Any]) -> NDArray[Any]:
    """A 1-D array of these objects; NumPy would look into sequences."""
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array
