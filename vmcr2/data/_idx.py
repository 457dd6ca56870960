"""MNIST's idx files, plain or gzipped; Fashion-MNIST has the same names and format."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ._catalogue import DATASETS, DataInfo
from ._errors import DataError
from ._files import md5, read_bytes, read_gzip
from ._known_reader import KnownReader
from ._split import Part, Reader, Split, make_split

_STEMS: dict[Part, str] = {"train": "train", "test": "t10k"}
_CLASS_NAMES = {
    "mnist": tuple("0123456789"),
    "fashion-mnist": (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
}


def find_idx(info: DataInfo, folder: Path) -> Reader | None:
    """A reader if the folder has any of the image files."""
    if not any(_locate(folder, stem, "images", 3).is_file() for stem in _STEMS.values()):
        return None
    _refuse_the_other_set(info, folder)
    return IdxReader(info, folder)


class IdxReader(KnownReader):
    """Four files: images and labels of two splits."""

    def __init__(self, info: DataInfo, folder: Path) -> None:
        super().__init__(info, folder, _CLASS_NAMES[info.name])
        self.folder = folder

    def load(self, part: Part) -> Split:
        """Images and labels of one split; the other split's files are not touched."""
        stem = _STEMS[part]
        path = _locate(self.folder, stem, "images", 3)
        images = read_idx(path, (self.info.image_shape[1], self.info.image_shape[2]))
        labels = read_idx(_locate(self.folder, stem, "labels", 1), ())
        return make_split(images, labels, self.info.image_shape, self.info.classes, str(path))

    def raw_files(self, part: Part | None = None) -> dict[str, Path]:
        """The gzipped files. For unpacked ones no md5 is published."""
        names = [name for name in self.info.md5 if part is None or name.startswith(_STEMS[part])]
        return {name: self.folder / name for name in names if (self.folder / name).is_file()}


def read_idx(path: Path, item: tuple[int, ...]) -> NDArray[np.uint8]:
    """The items of an idx file of bytes: (N, *item), with magic number, sizes and length checked."""
    data = read_gzip(path) if path.suffix == ".gz" and path.is_file() else read_bytes(path)
    rank = 1 + len(item)
    header = 4 + 4 * rank
    if len(data) < header or data[:4] != bytes((0, 0, 8, rank)):
        raise DataError(f"{path} does not start like an idx file of {rank} dimensions: fetch it again")
    count, *sizes = struct.unpack(f">{rank}I", data[4:header])
    if tuple(sizes) != item:
        raise DataError(f"{path} has items of {_by(sizes)}, expected {_by(item)}: is it another data set's file?")
    expected = header + count * int(np.prod(item, dtype=np.int64))
    if len(data) != expected:
        raise DataError(f"{path} has {len(data)} bytes, its header says {expected}: fetch it again")
    return np.frombuffer(data, np.uint8, offset=header).reshape(count, *item)


def _by(sizes: tuple[int, ...] | list[int]) -> str:
    return "×".join(map(str, sizes))


def _locate(folder: Path, stem: str, kind: str, rank: int) -> Path:
    """The spelling that exists; the published one if none does."""
    published = folder / f"{stem}-{kind}-idx{rank}-ubyte.gz"
    spellings = (published, published.with_suffix(""), folder / f"{stem}-{kind}.idx{rank}-ubyte")
    return next((path for path in spellings if path.is_file()), published)


def _refuse_the_other_set(info: DataInfo, folder: Path) -> None:
    # the two sets' files have the same names and sizes; the small label file tells them apart
    name = "train-labels-idx1-ubyte.gz"
    if not (folder / name).is_file():
        return
    found = md5(folder / name)
    for other in DATASETS.values():
        if other.name != info.name and other.md5.get(name) == found:
            raise DataError(f"{folder} holds {other.title}, not {info.title}: name the folder that has {info.title}")
