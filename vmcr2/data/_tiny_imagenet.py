"""Tiny ImageNet's folder of JPEG files. Its labelled validation images serve as the test set, as in the paper."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from ._catalogue import DataInfo
from ._errors import DataError
from ._files import read_bytes
from ._split import Part, Reader, Split
from ._workers import Progress, decoded, decoding_task

_FOLDER = "tiny-imagenet-200"
_EVERY = 64  # images between two calls of progress
_BYTES = 2000  # of a usual file


def find_tiny_imagenet(info: DataInfo, folder: Path) -> Reader | None:
    """A reader if the folder is, or holds, tiny-imagenet-200."""
    for place in (folder / _FOLDER, folder):
        if (place / "wnids.txt").is_file():
            return TinyImageNetReader(info, place)
    return None


class TinyImageNetReader(Reader):
    """A class's label is its line in wnids.txt; its name comes from words.txt."""

    def __init__(self, info: DataInfo, folder: Path) -> None:
        self.info = info
        self.folder = folder
        self.progress: Progress | None = None
        self.wnids = _lines(folder / "wnids.txt")
        if not self.wnids or len(set(self.wnids)) != len(self.wnids):
            raise DataError(f"{folder / 'wnids.txt'} is empty or names a class twice: fetch it again")
        for wnid in self.wnids:  # they become paths
            if not re.fullmatch(r"\w+", wnid):
                raise DataError(
                    f"{folder / 'wnids.txt'} has the class {wnid!r}, which is no WordNet id: fetch it again"
                )
        super().__init__(folder, _class_names(folder / "words.txt", self.wnids), info.image_shape)

    def load(self, part: Part) -> Split:
        """Every JPEG of one split, decoded by all cores. The 100,000 training images take a while, so pack them."""
        files = self._train_files() if part == "train" else self._test_files()
        images = np.empty((len(files), *self.info.image_shape), np.uint8)
        for row, pixels in enumerate(_decoded([path for path, _ in files], self.info.image_shape)):
            images[row] = pixels
            if self.progress is not None and ((row + 1) % _EVERY == 0 or row + 1 == len(files)):
                self.progress(f"decoding {part}", row + 1, len(files))
        return Split(torch.from_numpy(images), torch.tensor([label for _, label in files], dtype=torch.int64))

    def _train_files(self) -> list[tuple[Path, int]]:
        files: list[tuple[Path, int]] = []
        for label, wnid in enumerate(self.wnids):
            folder = self.folder / "train" / wnid / "images"
            # by length first: n01443537_2 before n01443537_10, whatever order the file system has
            found = sorted(folder.glob("*.JPEG"), key=lambda path: (len(path.name), path.name))
            if not found:
                raise DataError(f"{folder} holds no .JPEG files: fetch {self.info.title.split(',')[0]} again")
            files += [(path, label) for path in found]
        return files

    def _test_files(self) -> list[tuple[Path, int]]:
        annotations = self.folder / "val" / "val_annotations.txt"
        labels = {wnid: label for label, wnid in enumerate(self.wnids)}
        files = []
        for line in _lines(annotations):
            name, wnid, *_ = [*line.split("\t"), ""]
            if wnid not in labels or not re.fullmatch(r"[\w.-]+", name):  # the name becomes a path
                raise DataError(f"{annotations} has the line {line!r}, which names no known class: fetch it again")
            files.append((annotations.parent / "images" / name, labels[wnid]))
        if not files:
            raise DataError(f"{annotations} is empty: fetch it again")
        return files


def _decoded(
    paths: list[Path], shape: tuple[int, int, int]
) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    """(3, H, W) bytes each; greyscale files, of which there are some, become three equal channels."""
    task = decoding_task(shape, formats=("JPEG",), turn=False)  # turn: the published files are upright as they are
    for path, (seen, pixels) in zip(paths, decoded([(str(path), _BYTES) for path in paths], task), strict=True):
        if isinstance(seen, str):
            if not path.exists():
                raise DataError(f"{path} is missing: fetch it again")
            raise DataError(f"{path} is not a whole JPEG file ({seen}): fetch it again")
        if not pixels:
            size = f"{seen.width}×{seen.height}"
            raise DataError(f"{path} is {size}, expected {shape[2]}×{shape[1]}: is it another data set's?")
        yield np.frombuffer(pixels, np.uint8).reshape(shape)


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in read_bytes(path).decode("utf-8", "replace").splitlines() if line.strip()]


def _class_names(words: Path, wnids: list[str]) -> tuple[str, ...]:
    """The first synonym; with the WordNet id where two classes share it, and the id alone where there are no words."""
    lines = _lines(words) if words.is_file() else []
    known = dict(line.split("\t", 1) for line in lines if "\t" in line)
    short = [known.get(wnid, wnid).split(",")[0].strip() for wnid in wnids]
    count = Counter(short)
    return tuple(name if count[name] == 1 else f"{name} ({wnid})" for name, wnid in zip(short, wnids, strict=True))
