"""Reads a .parquet file into columns, with pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ._columns import MOST_COLUMNS, Column, as_column, refuse_twins
from ._errors import DataError
from ._memory import refuse_too_large
from ._regular import open_regular

# of conversions: texts that are no UTF-8, dates beyond the year 9999, unknown time zones, lists in lists
_DAMAGE = (OSError, ValueError, TypeError, LookupError, OverflowError, MemoryError, RuntimeError)


def read_parquet(path: Path) -> dict[str, Column]:
    """The columns by name. A column of number lists of one length, an embedding, becomes name[0], name[1], …"""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path} needs pyarrow to be read: pip install pyarrow, or save the table as csv") from None
    try:
        with open_regular(path) as stream:
            schema = pyarrow.parquet.ParquetFile(stream).schema_arrow
            # one long text in a million rows stays one text
            texts = [own.name for own in schema if _is_text(own.type)]
            return _read(path, pyarrow.parquet.ParquetFile(stream, read_dictionary=texts))
    except DataError:
        raise
    except (pyarrow.ArrowException, *_DAMAGE) as error:
        reason = (str(error) or type(error).__name__).split(". ")[0].splitlines()[0].rstrip(".")[:200]
        raise DataError(f"{path} is not a whole parquet file ({reason}): write it again") from error


def _read(path: Path, file: Any) -> dict[str, Column]:
    about = file.metadata
    if about.num_columns > MOST_COLUMNS:
        raise DataError(f"{path} has {about.num_columns} columns, and a table may have {MOST_COLUMNS}: use fewer")
    if about.num_rows < 0:
        raise ValueError("it claims a negative number of rows")
    unpacked = sum(about.row_group(at).total_byte_size for at in range(about.num_row_groups))
    # a number takes 8 bytes as pyarrow has it, 8 as a column has it, and 8 while it is prepared
    refuse_too_large(24 * about.num_rows * about.num_columns + 2 * max(0, unpacked), path)
    table = file.read()
    table.validate(full=True)  # offsets, places in dictionaries, UTF-8: of a damaged file they can lead anywhere
    if table.num_rows != about.num_rows:
        raise ValueError(f"it has {table.num_rows} rows and claims {about.num_rows}")
    refuse_twins(table.column_names, str(path))
    columns: dict[str, Column] = {}
    for name, chunks in zip(table.column_names, table.columns, strict=True):
        refuse_too_large(_objects_of(chunks), path)
        columns |= _columns(str(name), chunks)
    refuse_twins(list(columns), str(path))
    if not table.num_rows:
        raise DataError(f"{path} has no rows: write some")
    return columns


def _objects_of(chunks: Any) -> int:
    """Bytes of what becomes an object of Python for each value, in the worst case."""
    from pyarrow import types

    plain = types.is_floating(chunks.type) or types.is_integer(chunks.type) or types.is_boolean(chunks.type)
    return 0 if plain else 100 * len(chunks) + 8 * int(chunks.nbytes)


def _columns(name: str, chunks: Any) -> dict[str, Column]:
    from pyarrow import types

    kind = chunks.type
    if types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind):
        # float64 has room for NaN where a value is missing, which whole numbers and booleans have not
        column = Column("boolean" if types.is_boolean(kind) else "number", _floats(chunks))
        return {name: column}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _embedding(name, chunks.to_pylist())
    if types.is_dictionary(kind):
        return {name: as_column([value for chunk in chunks.chunks for value in _looked_up(chunk)])}
    return {name: as_column(chunks.to_pylist())}


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _looked_up(chunk: Any) -> list[Any]:
    """The values of a chunk that has every different one once; equal values are one object."""
    known = chunk.dictionary.to_pylist()
    return [None if at is None else known[at] for at in chunk.indices.to_pylist()]


def _floats(chunks: Any) -> Any:
    import pyarrow

    return np.asarray(chunks.cast(pyarrow.float64(), safe=False).to_numpy(), dtype=np.float64)


def _embedding(name: str, lists: list[Any]) -> dict[str, Column]:
    widths = {len(row) if row is not None else 0 for row in lists}
    flat = as_column([value for row in lists for value in row or ()])
    if len(widths) != 1 or not (width := widths.pop()) or flat.kind != "number":
        return {name: Column("other", np.array([None if row is None else str(row) for row in lists], dtype=object))}
    matrix = flat.values.reshape(len(lists), width)
    return {f"{name}[{at}]": Column("number", matrix[:, at]) for at in range(width)}
