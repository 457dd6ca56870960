"""Tables as .npy and .npz: an array, an archive that we zip, or a file as it is."""

from __future__ import annotations

import contextlib
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from vmcr2.data import DataError, from_table, read_columns

from .pieces import joined, taken_apart

DOCUMENTED = (DataError,)


def _saved(save: Any, *arrays: Any, **named: Any) -> bytes:
    stream = io.BytesIO()
    save(stream, *arrays, **named)
    return stream.getvalue()


def seeds() -> list[bytes]:
    x, y = np.arange(24.0).reshape(12, 2), np.arange(12) % 3
    names = np.array(["a", "b", "é"])[y]
    return [
        joined(0, _saved(np.save, np.c_[x, y])),
        joined(1, _saved(np.save, x), _saved(np.save, y)),
        joined(1, _saved(np.save, np.asfortranarray(x.astype(">i2"))), _saved(np.save, names)),
        joined(1, _saved(np.save, names[:, None]), _saved(np.save, y.astype("S1"))),
        joined(2, _saved(np.savez, x=x, y=names)),
        joined(2, _saved(np.savez_compressed, x_train=x, y_train=y, x_test=x, y_test=y)),
    ]


def run(data: bytes, folder: Path) -> None:
    choice, parts = taken_apart(data, 2)
    file = folder / ("x.npy" if choice % 3 == 0 else "x.npz")
    if choice % 3 == 1:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("x.npy", parts[0])
            archive.writestr("y.npy", parts[1])
    else:
        file.write_bytes(data[1:])
    with contextlib.suppress(DataError):
        read_columns(file)
    from_table(file)
