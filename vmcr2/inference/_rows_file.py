"""Writes rows of answers into a .csv, .jsonl or .parquet file, block by block; the file appears when it is whole."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._shared import UserError, atomic

Rows = Mapping[str, Sequence[Any]]
"""Columns of equal length."""
Write = Callable[[Rows], None]
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # the last four: of full width, in Japanese
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


@contextmanager
def rows_file(path: Path, texts: Collection[str] = ()) -> Iterator[Write]:
    """A function that adds rows. All calls must have the same columns.

    Columns ``texts`` are texts where they have a value. Parquet must know it if the first rows have none.
    """
    with whole_file(path) as temporary, _WRITERS[path.suffix.lower()](temporary, texts) as write:
        yield write


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """As ``atomic``; a full disk or a folder that cannot be written to is one sentence."""
    try:
        with atomic(path) as temporary:
            yield temporary
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def check_output(path: Path, suffixes: Sequence[str], *, force: bool = False) -> None:
    """An output must have a known ending, a folder to be in, and must not exist yet."""
    if path.suffix.lower() not in suffixes:
        raise UserError(f"{path} must end in {' or '.join(filter(None, (', '.join(suffixes[:-1]), suffixes[-1])))}")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent}: create it first")
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file")
    if path.exists() and not force:
        raise UserError(f"{path} already exists: choose another name, or --force (force=True) to replace it")
    if path.suffix.lower() == ".parquet":
        _arrow()


@contextmanager
def _csv(path: Path, _: Collection[str]) -> Iterator[Write]:
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as stream:
        lines = csv.writer(stream)
        started = False

        def write(rows: Rows) -> None:
            nonlocal started
            if not started:
                lines.writerow(map(_no_formula, rows))
                started = True
            lines.writerows(zip(*(map(_no_formula, values) for values in rows.values()), strict=True))

        yield write


def _no_formula(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe before it, as people write it there.

    Names of files and classes come from strangers, and a formula can send other cells away. Numbers stay as they are.

    >>> [_no_formula(cell) for cell in ("=1+1", "@a", "-1", "-rf", "a=b", -1.5)]
    ["'=1+1", "'@a", '-1', "'-rf", 'a=b', -1.5]
    """
    if not isinstance(cell, str) or not cell.startswith(_FORMULA) or _NUMBER.fullmatch(cell):
        return cell
    return f"'{cell}"


@contextmanager
def _jsonl(path: Path, _: Collection[str]) -> Iterator[Write]:
    with path.open("w", encoding="utf-8", errors="backslashreplace") as stream:

        def write(rows: Rows) -> None:
            for values in zip(*rows.values(), strict=True):
                stream.write(json.dumps(dict(zip(rows, values, strict=True)), ensure_ascii=False) + "\n")

        yield write


@contextmanager
def _parquet(path: Path, texts: Collection[str]) -> Iterator[Write]:
    arrow, files = _arrow()
    writer: Any = None

    def write(rows: Rows) -> None:
        nonlocal writer
        table = arrow.table({name: _utf8(values) for name, values in rows.items()})
        if writer is None:
            # a block without a value in some column says nothing of its type
            empty = {own.name: arrow.string() if own.name in texts else arrow.float64() for own in table.schema}
            fields = [
                (own.name, empty[own.name] if arrow.types.is_null(own.type) else own.type) for own in table.schema
            ]
            writer = files.ParquetWriter(path, arrow.schema(fields))
        writer.write_table(table.cast(writer.schema))

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def _utf8(values: Sequence[Any]) -> Sequence[Any]:
    """Names of files and folders may have bytes that are no UTF-8."""
    if not any(isinstance(value, str) for value in values):
        return values
    return [None if value is None else value.encode("utf-8", "backslashreplace").decode() for value in values]


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError("writing .parquet needs pyarrow: pip install 'vmcr2[tables]', or use .csv") from error
    return pyarrow, pyarrow.parquet


_WRITERS = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
