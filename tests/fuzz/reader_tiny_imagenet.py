"""Tiny ImageNet's folder: lists of classes, words and annotations, and a JPEG file."""

from __future__ import annotations

import tempfile
from pathlib import Path

from data_formats import write_tiny_imagenet

from vmcr2.data import DataError, open_data

from .pieces import joined, taken_apart

DOCUMENTED = (DataError,)
_FILES = ("wnids.txt", "words.txt", "val/val_annotations.txt", "val/images/val_1.JPEG")


def seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as made:
        root = write_tiny_imagenet(Path(made))
        (root / "val" / "val_annotations.txt").write_text("val_1.JPEG\tn03\t0\t0\t63\t63\n")
        return [joined(0, *((root / name).read_bytes() for name in _FILES))]


def run(data: bytes, folder: Path) -> None:
    _, parts = taken_apart(data, len(_FILES))
    (folder / "val" / "images").mkdir(parents=True)
    for name, content in zip(_FILES, parts, strict=False):
        (folder / name).write_bytes(content)
    open_data("tiny-imagenet", folder).test()
