"""Tables as .parquet."""

from __future__ import annotations

import datetime
import io
from pathlib import Path

import pyarrow
import pyarrow.parquet

from vmcr2.data import DataError, from_table

DOCUMENTED = (DataError,)


def seeds() -> list[bytes]:
    rows = 12
    day = datetime.date(2020, 1, 1)
    tables = [
        {"x": list(range(rows)), "colour": ["red", None, "é"] * 4, "label": [0, 1] * 6},
        {"e": [[1.0, 2.0]] * rows, "b": [True, False] * 6, "day": [day] * rows, "label": ["a", "b"] * 6},
        {"s": [{"a": 1}] * rows, "x": [0.5, 1.5, 2.0] * 4, "label": ["a", "b"] * 6},
    ]
    found = []
    for table in tables:
        for compression in ("none", "snappy"):
            stream = io.BytesIO()
            pyarrow.parquet.write_table(pyarrow.table(table), stream, compression=compression)
            found.append(stream.getvalue())
    return found


def run(data: bytes, folder: Path) -> None:
    (folder / "x.parquet").write_bytes(data)
    from_table(folder / "x.parquet")
