"""CIFAR: the binary layout as a folder, both layouts in an archive: a tar that we gzip, or bytes as they are."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from data_formats import tar, write_cifar_binary, write_cifar_python

from vmcr2.data import DataError, open_data

from .pieces import joined, taken_apart

DOCUMENTED = (DataError,)
_FOLDER = "cifar-100-binary"


def seeds() -> list[bytes]:
    found = []
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        write_cifar_binary(root, 100, per_batch=1)
        write_cifar_python(root, 100, per_batch=1)
        files = [(root / _FOLDER / name).read_bytes() for name in ("fine_label_names.txt", "train.bin")]
        found.append(joined(0, *files))
        for folder in (_FOLDER, "cifar-100-python"):
            packed = tar(root / folder, root / "x.tar.gz").read_bytes()
            found += [joined(1, gzip.decompress(packed)), joined(2, packed)]
    return found


def run(data: bytes, folder: Path) -> None:
    choice, parts = taken_apart(data, 2)
    if choice % 3 == 0:
        (folder / _FOLDER).mkdir()
        (folder / _FOLDER / "fine_label_names.txt").write_bytes(parts[0])
        (folder / _FOLDER / "train.bin").write_bytes(parts[1])
        open_data("cifar100", folder).train()
    else:
        whole = data[1:]
        (folder / "x.tar.gz").write_bytes(gzip.compress(whole, 1, mtime=0) if choice % 3 == 1 else whole)
        open_data("cifar100", folder / "x.tar.gz").train()
