"""Reads a .parquet file into columns, with pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ._columns import Column, as_column, refuse_twins
from ._errors import DataError


def read_parquet(path: Path) -> dict[str, Column]:
    """The columns by name. A column of number lists of one length, an embedding, becomes name[0], name[1], …"""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path} needs pyarrow to be read: pip install pyarrow, or save the table as csv") from None
    try:
        table = pyarrow.parquet.ParquetFile(path).read()
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).split(". ")[0].splitlines()[0].rstrip(".")
        raise DataError(f"{path} is not a whole parquet file ({reason}): write it again") from error
    refuse_twins(table.column_names, str(path))
    columns: dict[str, Column] = {}
    for name, chunks in zip(table.column_names, table.columns, strict=True):
        columns |= _columns(str(name), chunks)
    refuse_twins(list(columns), str(path))
    if not table.num_rows:
        raise DataError(f"{path} has no rows: write some")
    return columns


def _columns(name: str, chunks: Any) -> dict[str, Column]:
    from pyarrow import types

    kind = chunks.type
    if types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind):
        # float64 has room for NaN where a value is missing, which whole numbers and booleans have not
        column = Column("boolean" if types.is_boolean(kind) else "number", _floats(chunks))
        return {name: column}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _embedding(name, chunks.to_pylist())
    return {name: as_column(chunks.to_pylist())}


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
