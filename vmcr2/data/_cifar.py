"""CIFAR-10 and CIFAR-100, binary and python layout, as a folder or as the .tar.gz that was downloaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ._archive import Archive, top_folder
from ._catalogue import DataInfo
from ._errors import DataError
from ._files import Folder
from ._known_reader import KnownReader
from ._pickles import read_pickle
from ._split import Part, Reader, Split, make_split

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """Where a layout keeps its files. A binary record is ``label_bytes`` labels, the last one ours, then the pixels."""

    folder: str
    archive: str
    parts: dict[Part, tuple[str, ...]]
    names: str
    label_bytes: int = 0
    """0: the python layout"""
    labels_key: str = ""
    names_key: str = ""


_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
_LAYOUTS = {
    "cifar10": (
        Layout(
            "cifar-10-batches-bin",
            "cifar-10-binary.tar.gz",
            {"train": tuple(f"{name}.bin" for name in _BATCHES), "test": ("test_batch.bin",)},
            "batches.meta.txt",
            label_bytes=1,
        ),
        Layout(
            "cifar-10-batches-py",
            "cifar-10-python.tar.gz",
            {"train": _BATCHES, "test": ("test_batch",)},
            "batches.meta",
            labels_key="labels",
            names_key="label_names",
        ),
    ),
    "cifar100": (
        Layout(
            "cifar-100-binary",
            "cifar-100-binary.tar.gz",
            {"train": ("train.bin",), "test": ("test.bin",)},
            "fine_label_names.txt",
            label_bytes=2,
        ),
        Layout(
            "cifar-100-python",
            "cifar-100-python.tar.gz",
            {"train": ("train",), "test": ("test",)},
            "meta",
            labels_key="fine_labels",
            names_key="fine_label_names",
        ),
    ),
}


def find_cifar(info: DataInfo, folder: Path) -> Reader | None:
    """A reader if the folder is, or holds, one of the layouts' folders or archives."""
    for layout in _LAYOUTS[info.name]:
        for place in (folder / layout.folder, folder):
            if any((place / name).is_file() for part in layout.parts.values() for name in part):
                return CifarReader(info, layout, Folder(place))
        if (folder / layout.archive).is_file():
            return open_archive(info, folder / layout.archive)
    return None


def open_archive(info: DataInfo, path: Path) -> Reader:
    """A reader of a .tar.gz of any name."""
    top = top_folder(path)
    for layout in _LAYOUTS.get(info.name, ()):
        if layout.folder == top:
            return CifarReader(info, layout, Archive(path, top))
    raise DataError(f"{path} holds {top or 'nothing'}, which is not {info.title}: name another file")


class CifarReader(KnownReader):
    """One layout in one place."""

    def __init__(self, info: DataInfo, layout: Layout, files: Folder | Archive) -> None:
        super().__init__(info, files.path, _class_names(layout, files))
        self.layout = layout
        self.files = files

    def load(self, part: Part) -> Split:
        """The batches of one split; the other split's are not read."""
        names = self.layout.parts[part]
        batches = []
        for name, data in zip(names, self.files.read(names), strict=True):
            where = self.files.label(name)
            images, labels = _records(data, self.layout, where)
            # checked batch by batch, so that an error names the batch
            batches.append(make_split(images, labels, self.info.image_shape, len(self.class_names), where))
        return _joined(batches)

    def raw_files(self, part: Part | None = None) -> dict[str, Path]:
        """The archive, or the folder's files."""
        if isinstance(self.files, Archive):
            return {self.layout.archive: self.files.path}
        names = [name for own, files in self.layout.parts.items() for name in files if part in (None, own)]
        paths = {f"{self.layout.folder}/{name}": self.files.path / name for name in names}
        return {name: path for name, path in paths.items() if path.is_file()}


def _joined(batches: list[Split]) -> Split:
    return Split(torch.cat([b.images for b in batches]), torch.cat([b.labels for b in batches]))


def _class_names(layout: Layout, files: Folder | Archive) -> tuple[str, ...]:
    # not whole: reading images checks the rest of the archive
    (data,) = files.read([layout.names], whole=False)
    where = files.label(layout.names)
    if layout.label_bytes:
        names: object = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    else:
        names = read_pickle(data, where).get(layout.names_key)
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise DataError(f"{where} has no list of class names: fetch it again")
    return tuple(names)


def _records(data: bytes, layout: Layout, where: str) -> tuple[NDArray[np.uint8], NDArray[np.generic]]:
    """(N, 3072) pixels and (N,) labels of one batch."""
    if not layout.label_bytes:
        return _python_records(read_pickle(data, where), layout.labels_key, where)
    record = layout.label_bytes + _PIXELS
    if len(data) % record:
        raise DataError(f"{where} has {len(data)} bytes, not a multiple of the record's {record}: fetch it again")
    rows = np.frombuffer(data, np.uint8).reshape(-1, record)
    return rows[:, layout.label_bytes :], rows[:, layout.label_bytes - 1]


def _python_records(batch: dict[str, object], key: str, where: str) -> tuple[NDArray[np.uint8], NDArray[np.generic]]:
    pixels, labels = batch.get("data"), batch.get(key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_PIXELS,):
        raise DataError(f"{where} has no array 'data' of {_PIXELS} bytes per image: fetch it again")
    if isinstance(labels, list) and all(type(label) is int and abs(label) < 2**31 for label in labels):
        labels = np.array(labels, dtype=np.int64)
    if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(f"{where} has no list {key!r} of whole numbers: fetch it again")
    return pixels, labels
