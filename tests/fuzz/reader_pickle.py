"""CIFAR's python layout: pickles of names and of pictures."""

from __future__ import annotations

import pickle
from pathlib import Path

from data_formats import dump, pixels

from vmcr2.data import DataError, open_data

from .pieces import joined, taken_apart

DOCUMENTED = (DataError,)


def seeds() -> list[bytes]:
    table, names = {"data": pixels(2, 3072), "fine_labels": [3, 1]}, {"fine_label_names": ["a", "b", "c", "d"]}
    found = [
        joined(0, dump(names, style), dump(table, style)) for style in ("python2", "numpy1", "native-4", "native-5")
    ]
    found += [joined(0, pickle.dumps(names, protocol), pickle.dumps(table, protocol)) for protocol in (0, 2, 3)]
    return found


def run(data: bytes, folder: Path) -> None:
    _, parts = taken_apart(data, 2)
    (folder / "cifar-100-python").mkdir()
    (folder / "cifar-100-python" / "meta").write_bytes(parts[0])
    (folder / "cifar-100-python" / "train").write_bytes(parts[1])
    open_data("cifar100", folder).train()
