"""How a row of a table becomes numbers: learned from training rows, kept as plain numbers and names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._shared import listed
from ._columns import DECIMAL_COMMA, Column, as_columns, refuse_infinite, text_of
from ._errors import DataError

FORMAT = "vmcr2-preparation-1"
_MOST_VALUES = 50
_LARGEST = 1e100  # its square still is a float64
_ID_NAME = re.compile(r"(?i:unnamed: ?\d*|index|idx|(.*[ _.-])?id)|.*[a-z]I[Dd]")
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Prepared:
    """What was learned of one column."""

    name: str
    kind: Literal["number", "boolean", "category"]
    fill: float = 0.0
    """Replaces a missing number (the median) or boolean (the more frequent one)."""
    mean: float = 0.0
    scale: float = 1.0
    values: tuple[str | None, ...] = ()
    """The categories; None is a missing value, where training rows had one."""
    missing: int = 0
    """How many training rows had no value."""

    @property
    def outputs(self) -> list[str]:
        """Names of the numbers that it becomes."""
        if self.kind != "category":
            return [self.name]
        return [f"{self.name}={'(missing)' if value is None else value}" for value in self.values]

    def transform(self, column: Column) -> Matrix:
        """(rows, outputs)."""
        if self.kind == "category":
            place = {value: at for at, value in enumerate(self.values)}
            at = np.array([place.get(text, -1) for text in column.texts()], dtype=np.int64)
            # a value that training rows did not have matches no column: all zeros
            return np.asarray(at[:, None] == np.arange(len(self.values)), dtype=np.float64)
        numbers = self._numbers(column)
        filled = np.where(np.isnan(numbers), self.fill, numbers)
        return np.asarray(((filled - self.mean) / self.scale)[:, None])

    def note(self, column: Column) -> str:
        """A sentence about categories that training did not have; empty if there are none."""
        new = {} if self.kind != "category" else dict.fromkeys(filter(None, column.texts()))
        strange = [text for text in new if text not in self.values]
        return f"The column {self.name} has values that training did not have: {listed(strange)}." if strange else ""

    def _numbers(self, column: Column) -> Matrix:
        expected = "true or false" if self.kind == "boolean" else "numbers"
        texts = column.values.dtype == object
        if self.kind == "boolean":
            wrong = ~column.missing if texts else ~column.missing & ~np.isin(column.values, (0, 1))
        else:
            cells = column.values if texts else ()
            wrong = np.array([cell is not None and not _is_number(cell) for cell in cells], dtype=np.bool_)
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(
                f"the column {self.name} has the value {text_of(column.values[row])!r} in row {row + 1}, but "
                f"{expected} in the training rows: correct it, or leave it empty"
            )
        return np.asarray(column.values, dtype=np.float64)

    def to_json_dict(self) -> dict[str, Any]:
        """JSON's types."""
        own: dict[str, Any] = {"name": self.name, "kind": self.kind, "missing": self.missing}
        if self.kind == "category":
            return own | {"values": list(self.values)}
        return own | {"fill": self.fill, "mean": self.mean, "scale": self.scale}


@dataclass(frozen=True)
class Preparation:
    """Numbers are filled with the median and standardised; categories become columns of 0 and 1.

    Booleans become 0 and 1. A missing category is a category of its own, if training rows had one. Constant columns,
    dates, ids and free text are left out. scikit-learn learns all this. What it learned is kept here as numbers and
    names, so that it can be written as JSON and read without a pickle.

    >>> made = Preparation.fit({"age": [20, 40, None, 60], "colour": ["red", "blue", "red", "blue"]})
    >>> made.columns
    ('age', 'colour=blue', 'colour=red')
    >>> made.transform([{"age": 40, "colour": "green"}]).tolist()
    [[0.0, 0.0, 0.0]]
    >>> Preparation.from_json_dict(made.to_json_dict()) == made
    True
    """

    prepared: tuple[Prepared, ...]
    left_out: Mapping[str, str]
    """Columns that are not used, and why."""

    @classmethod
    def fit(cls, columns: Any) -> Preparation:
        """Learn from training rows: a mapping name -> values, a DataFrame, a list of dicts or a 2-D array."""
        table = as_columns(columns)
        refuse_infinite(table, "the table")
        reasons = {name: _useless(name, column) for name, column in table.items()}
        left_out = {name: reason for name, reason in reasons.items() if reason}
        used = {name: column for name, column in table.items() if name not in left_out}
        if not used:
            why = listed(f"{name} ({reason})" for name, reason in left_out.items())
            raise DataError(
                f"the table has no column to learn from, left out: {why or 'nothing'}: add a column of numbers"
            )
        learned = _learn_numbers({n: c for n, c in used.items() if c.kind == "number"})
        learned |= _learn_booleans({n: c for n, c in used.items() if c.kind == "boolean"})
        learned |= _learn_categories({n: c for n, c in used.items() if c.kind == "text"})
        return cls(tuple(learned[name] for name in used), left_out)

    def transform(self, columns: Any, notes: list[str] | None = None) -> NDArray[np.float32]:
        """(rows, len(self.columns)) float32 of rows in any form that :meth:`fit` takes; columns in any order.

        Columns and categories that training did not have are ignored; sentences about them are appended to ``notes``.
        """
        table = as_columns(columns, as_text={own.name for own in self.prepared if own.kind == "category"})
        _refuse_rows_without(self.inputs, columns)
        absent = [own.name for own in self.prepared if own.name not in table]
        if absent:
            raise DataError(
                f"the rows have no column {listed(absent)}: give the columns that were trained on, "
                f"{listed((own.name for own in self.prepared), 10)}"
            )
        refuse_infinite({own.name: table[own.name] for own in self.prepared}, "the rows")
        known = {*self.inputs, *self.left_out}
        added = [name for name in table if name not in known]
        if notes is not None:
            notes += [f"Ignored columns that training did not have: {listed(added)}."] if added else []
            notes += filter(None, (own.note(table[own.name]) for own in self.prepared))
        parts = [own.transform(table[own.name]) for own in self.prepared]
        numbers = np.concatenate(parts, axis=1)
        outside = np.abs(numbers) > np.finfo(np.float32).max
        if outside.any():
            row, at = np.argwhere(outside)[0]
            raise DataError(
                f"the column {self.columns[at]} has a number in row {row + 1} that is far outside the training rows: "
                "correct it, or leave it empty"
            )
        return numbers.astype(np.float32)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the numbers that a row becomes: "age", "colour=red"."""
        return tuple(name for own in self.prepared for name in own.outputs)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the columns that rows must have."""
        return tuple(own.name for own in self.prepared)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was filled, turned into several columns and left out, in sentences."""
        return tuple(_notes(self))

    def to_json_dict(self) -> dict[str, Any]:
        """JSON's types, without loss."""
        prepared = [own.to_json_dict() for own in self.prepared]
        return {"format": FORMAT, "columns": prepared, "left_out": dict(self.left_out)}

    @classmethod
    def from_json_dict(cls, kept: Mapping[str, Any]) -> Preparation:
        """What :meth:`to_json_dict` gave."""
        if kept.get("format") != FORMAT:
            raise DataError(
                f"the kept preparation has the format {kept.get('format')!r}, this version reads {FORMAT!r}: "
                "use the version of vmcr2 that wrote it, or train again"
            )
        columns = [Prepared(**(own | {"values": tuple(own.get("values", ()))})) for own in kept["columns"]]
        return cls(tuple(columns), dict(kept["left_out"]))


def _refuse_rows_without(names: Sequence[str], rows: Any) -> None:
    """Of a list of dicts every row must have all columns: a missing value is None, a missing name is a mistake."""
    if not isinstance(rows, list | tuple) or len(rows) < 2:
        return
    for at, row in enumerate(rows):
        absent = [name for name in names if isinstance(row, Mapping) and name not in row]
        if absent:
            raise DataError(f"row {at + 1} has no column {listed(absent)}: give it, or None if the value is missing")


def _useless(name: str, column: Column) -> str:
    """Why a column cannot be learned from; empty if it can."""
    if column.missing.all():
        return "no values"
    if column.kind in ("date", "other"):
        return {"date": "dates", "other": "neither numbers nor text"}[column.kind]
    return _useless_text(name, column) if column.kind == "text" else _useless_number(name, column)


def _useless_number(name: str, column: Column) -> str:
    present = column.values[~column.missing]
    if present.min() == present.max():
        return "constant"
    whole = bool((present == np.floor(present)).all())
    if whole and _ID_NAME.fullmatch(name) and len(np.unique(present)) == len(column):
        return "an id: another number in every row"
    return ""


def _useless_text(name: str, column: Column) -> str:
    gaps = column.missing
    present = column.values[~gaps]
    different = len(set(present))
    if different == 1 and not gaps.any():
        return "constant"
    if different <= _MOST_VALUES and different <= len(column) / 2:
        return ""
    return _many_texts(name, present, different)


def _many_texts(name: str, present: NDArray[Any], different: int) -> str:
    """Free text and ids are left out. Numbers with a mistake among them are named: they may be worth correcting."""
    strange = [text for text in present if not _is_number(text)]
    if not strange:
        return "numbers in the training rows, but text in others"
    if all(DECIMAL_COMMA.fullmatch(text) for text in strange):
        raise DataError(f"the column {name} writes numbers with a comma, as in {strange[0]}: write them with a point")
    if 2 * len(strange) < len(present):
        return f"{len(present) - len(strange)} numbers, but also text such as {strange[0]!r}"
    return f"text with {different} different values: an id or free text"


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _learn_numbers(columns: Mapping[str, Column]) -> dict[str, Prepared]:
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import StandardScaler

    if not columns:
        return {}
    matrix = np.stack([column.values for column in columns.values()], axis=1)
    imputer = SimpleImputer(strategy="median").fit(matrix)
    with np.errstate(over="ignore", invalid="ignore"):  # numbers so large are refused below
        scaler = StandardScaler().fit(imputer.transform(matrix))
    learned = {}
    for at, name in enumerate(columns):
        mean, scale = float(scaler.mean_[at]), float(scaler.scale_[at])
        if np.nanmax(np.abs(matrix[:, at])) > _LARGEST:
            raise DataError(f"the column {name} has numbers too large to standardise: divide it by a constant")
        missing = int(columns[name].missing.sum())
        learned[name] = Prepared(name, "number", float(imputer.statistics_[at]), mean, scale, missing=missing)
    return learned


def _learn_booleans(columns: Mapping[str, Column]) -> dict[str, Prepared]:
    from sklearn.impute import SimpleImputer

    if not columns:
        return {}
    matrix = np.stack([column.values for column in columns.values()], axis=1)
    fills = SimpleImputer(strategy="most_frequent").fit(matrix).statistics_
    return {
        name: Prepared(name, "boolean", float(fill), missing=int(columns[name].missing.sum()))
        for name, fill in zip(columns, fills, strict=True)
    }


def _learn_categories(columns: Mapping[str, Column]) -> dict[str, Prepared]:
    from sklearn.preprocessing import OneHotEncoder

    if not columns:
        return {}
    matrix = np.stack([column.values for column in columns.values()], axis=1)
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(matrix)
    return {
        name: Prepared(name, "category", values=tuple(values), missing=int(columns[name].missing.sum()))
        for name, values in zip(columns, encoder.categories_, strict=True)
    }


def _notes(made: Preparation) -> list[str]:
    said = []
    for kind, how in (("number", "the column's median"), ("boolean", "the column's more frequent value")):
        gaps = [own for own in made.prepared if own.kind == kind and own.missing]
        if gaps:
            where = listed(f"{own.name} ({own.missing})" for own in gaps)
            said.append(f"Filled {sum(own.missing for own in gaps)} missing training values with {how}: {where}.")
    hot = [own for own in made.prepared if own.kind == "category"]
    if hot:
        where = listed(f"{own.name} ({len(own.values)})" for own in hot)
        said.append(f"Text became {sum(len(own.values) for own in hot)} columns of 0 and 1: {where}.")
    gaps = [own for own in hot if own.missing]
    if gaps:
        where = listed(f"{own.name} ({own.missing})" for own in gaps)
        said.append(f"A missing text is a value of its own: {where}.")
    if made.left_out:
        said.append(f"Left out: {listed((f'{name} ({why})' for name, why in made.left_out.items()), 10)}.")
    return said
