"""Reads a .csv file into columns: finds the delimiter, and whether the first line has names."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from ._columns import DECIMAL_COMMA, MISSING, MOST_COLUMNS, Column, from_texts, numbers_of, refuse_twins
from ._errors import DataError
from ._regular import open_regular

_DELIMITERS = (",", ";", "\t", "|")
_SAMPLE = 1000  # rows that decide on delimiter and names
_BLOCK = 10_000  # rows that are texts at a time: a text takes ten times the memory of a number
_CELLS = 1_000_000  # fewer rows, if they have many cells
MOST_LINE = 1 << 24
"""Characters of a line: a file without line ends is no table, and must not fill the memory."""


def read_csv(path: Path, as_text: Collection[str] = ()) -> tuple[dict[str, Column], list[str]]:
    """The columns by name, and notes. Columns ``as_text`` stay texts, even if all of them are numbers."""
    delimiter = _delimiter(path)
    sample = next(_blocks(path, delimiter, False, _SAMPLE), [])
    if not sample:
        raise DataError(f"{path} is empty: name a file with a line of column names and rows below it")
    named = not _is_data(sample)
    names = _names(sample[0]) if named else [str(at) for at in range(len(sample[0]))]
    refuse_twins(names, f"the first line of {path}")
    numbers = _numbers(path, delimiter, named, keep=[name not in as_text for name in names])
    texts = _texts(path, delimiter, named, [at for at, column in enumerate(numbers) if column is None])
    columns: dict[str, Column] = {}
    for at, name in enumerate(names):
        parts = numbers[at]
        if parts is not None:
            columns[name] = Column("number", np.concatenate(parts) if parts else np.empty(0))
        elif name in as_text:
            columns[name] = Column("text", _objects(texts[at]))
        else:
            columns[name] = from_texts(texts[at])
    if not len(next(iter(columns.values()))):
        raise DataError(f"{path} has column names but no rows: add rows below them")
    said = [] if named else [f"The first line has no names: the columns are called 0 to {len(names) - 1}."]
    return columns, said


def _rows(path: Path, delimiter: str) -> Iterator[list[str]]:
    """All lines as cells; empty lines are skipped."""
    width, reader = 0, None
    try:
        with _text(path) as stream:
            reader = csv.reader(_lines(stream, path), delimiter=delimiter, skipinitialspace=True)
            for row in reader:
                if not row or (len(row) == 1 and not row[0].strip()):
                    continue
                width = width or _checked_width(len(row), path)
                if len(row) != width:
                    raise DataError(
                        f"line {reader.line_num} of {path} has {_cells(len(row))}, but the first line has {width}: "
                        f"correct that line (a cell with {_shown(delimiter)} inside needs quotes)"
                    )
                yield row
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(f"{path} is not UTF-8 text (it has the byte 0x{byte:02x}): save it as UTF-8") from None
    except csv.Error as error:
        line = reader.line_num if reader else 1
        raise DataError(f"{path} is not a csv file at line {line} ({error}): correct that line") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): change its permissions") from error


def _text(path: Path) -> TextIO:
    return io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="")


def _lines(stream: TextIO, path: Path) -> Iterator[str]:
    for number in itertools.count(1):
        line = stream.readline(MOST_LINE)
        if not line:
            return
        if len(line) == MOST_LINE:
            raise DataError(
                f"line {number} of {path} has more than {MOST_LINE:,} characters: it is no table; save it again"
            )
        yield line


def _checked_width(cells: int, path: Path) -> int:
    if cells > MOST_COLUMNS:
        raise DataError(
            f"{path} has {cells} columns, and a table may have {MOST_COLUMNS}: use fewer, or save a .npz file"
        )
    return cells


def _delimiter(path: Path) -> str:
    """The one that cuts most lines of the beginning into as many cells as the first line; a comma if none does."""
    try:
        with _text(path) as stream:
            lines = [line for line in itertools.islice(_lines(stream, path), 50) if line.strip()]
    except UnicodeDecodeError:
        return ","  # the reader says what is wrong
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): change its permissions") from error
    if any("\0" in line for line in lines):
        raise DataError(f"{path} is not a text file: save it as csv, in UTF-8")

    def score(delimiter: str) -> tuple[bool, float, float, int]:
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True) if row]
        except csv.Error:
            rows = []
        if not rows:
            return False, 0.0, 0.0, 0
        alike = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
        # "1,5;2,5" has as many commas: but a cell with another delimiter is unusual, and one with a comma is not
        clean = sum(not any(sign in cell for sign in _DELIMITERS[1:]) for row in rows for cell in row)
        return len(rows[0]) > 1, alike, clean / sum(map(len, rows)), len(rows[0])

    return max(_DELIMITERS, key=score)


def _is_data(sample: Sequence[Sequence[str]]) -> bool:
    """Whether the first line is a row: it has numbers, and its texts occur again below, in their own columns."""
    first, *others = [[cell.strip() for cell in row] for row in sample]
    counted = [str(at) for at in range(len(first))]
    if first in (counted, ["", *counted[:-1]]):
        return False  # the names that pandas writes for an array, without and with its index
    if all(cell in MISSING for cell in first) or not any(map(_like_number, first)):
        return False
    below = [set(cells) for cells in zip(*others, strict=True)] or [set()] * len(first)
    return all(_like_number(cell) or cell in seen for cell, seen in zip(first, below, strict=True))


def _like_number(cell: str) -> bool:
    """A number, also one with a decimal comma, or a gap."""
    return numbers_of([cell]) is not None or DECIMAL_COMMA.fullmatch(cell) is not None


def _names(first: Sequence[str]) -> list[str]:
    """An empty name becomes what pandas calls it."""
    return [name.strip() or f"Unnamed: {at}" for at, name in enumerate(first)]


def _numbers(path: Path, delimiter: str, named: bool, keep: Sequence[bool]) -> list[list[NDArray[np.float64]] | None]:
    """Parts of every column that has numbers alone; None for the others."""
    found: list[list[NDArray[np.float64]] | None] = [[] if number else None for number in keep]
    for block in _blocks(path, delimiter, named):
        for at, cells in enumerate(zip(*block, strict=True)):
            parts = found[at]
            if parts is not None:
                part = numbers_of(cells)
                if part is None:
                    found[at] = None
                else:
                    parts.append(part)
    return found


def _texts(path: Path, delimiter: str, named: bool, wanted: Sequence[int]) -> dict[int, list[str]]:
    """The cells of these columns: a second reading, because only the last line shows that a column has no text."""
    found: dict[int, list[str]] = {at: [] for at in wanted}
    same: dict[str, str] = {}  # one object for every different text
    for block in _blocks(path, delimiter, named) if wanted else ():
        for at in wanted:
            found[at].extend(same.setdefault(row[at], row[at]) for row in block)
    return found


def _blocks(path: Path, delimiter: str, named: bool, most: int = _BLOCK) -> Iterator[list[list[str]]]:
    """Rows in lists of bounded memory; ``named`` leaves the first one out."""
    block: list[list[str]] = []
    for row in itertools.islice(_rows(path, delimiter), int(named), None):
        block.append(row)
        if len(block) >= most or len(block) * len(row) >= _CELLS:
            yield block
            block = []
    if block:
        yield block


def _objects(cells: Sequence[str]) -> NDArray[np.object_]:
    array = np.empty(len(cells), dtype=object)
    array[:] = [None if cell.strip() in MISSING else cell.strip() for cell in cells]
    return array


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


def _shown(delimiter: str) -> str:
    return "a tab" if delimiter == "\t" else f"'{delimiter}'"
