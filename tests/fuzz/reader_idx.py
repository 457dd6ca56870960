"""MNIST's files: plain, gzipped by us (so that changes reach what is inside), or gzipped bytes as they are."""

from __future__ import annotations

import gzip
from pathlib import Path

from data_formats import idx, pixels, some_labels

from vmcr2.data import DataError, open_data

from .pieces import joined, taken_apart

DOCUMENTED = (DataError,)


def seeds() -> list[bytes]:
    images, labels = idx(pixels(3, 28, 28)), idx(some_labels(3))
    zipped = gzip.compress(images, mtime=0), gzip.compress(labels, mtime=0)
    return [joined(0, images, labels), joined(1, images, labels), joined(2, *zipped)]


def run(data: bytes, folder: Path) -> None:
    choice, (images, labels, *_) = taken_apart(data, 2)
    for name, content in (("images-idx3", images), ("labels-idx1", labels)):
        if choice % 3 == 0:
            (folder / f"train-{name}-ubyte").write_bytes(content)
        else:
            packed = gzip.compress(content, 1, mtime=0) if choice % 3 == 1 else content
            (folder / f"train-{name}-ubyte.gz").write_bytes(packed)
    open_data("mnist", folder).train()
