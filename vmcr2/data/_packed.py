"""Packed data sets: one safetensors file each, with four tensors and their description."""

from __future__ import annotations

import json
from pathlib import Path

from ._catalogue import DataInfo
from ._errors import DataError
from ._memory import refuse_too_large
from ._packed_file import fits_together, opened, texts_of, write_whole
from ._split import Part, Reader, Split, split_checksum

FORMAT = "vmcr2-data-1"


def packed_name(info: DataInfo) -> str:
    """The file name of a packed data set."""
    return f"{info.name}.safetensors"


class PackedReader(Reader):
    """A packed file. A split is two tensors, and its checksum is verified whenever it is read."""

    def __init__(self, info: DataInfo, path: Path) -> None:
        with opened(path, "pack the data again") as handle:
            metadata: dict[str, str] = handle.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise DataError(f"{path} is not a data set packed by this version: {_again(info)}")
        if metadata.get("name") != info.name:
            raise DataError(f"{path} holds {metadata.get('name')}, not {info.name}: name another file")
        class_names = texts_of(metadata.get("class_names", ""))
        if class_names is None:
            raise DataError(f"{path} has no class names: {_again(info)}")
        super().__init__(path, class_names, info.image_shape)
        self.info = info
        self.file = path
        self._recorded: dict[Part, str] = {
            "train": metadata.get("train_sha256", ""),
            "test": metadata.get("test_sha256", ""),
        }

    def load(self, part: Part) -> Split:
        """The two tensors of one split; the file is mapped, so the other split's bytes are not read."""
        with opened(self.file, _again(self.info)) as handle:
            images, labels = handle.get_tensor(f"{part}_images"), handle.get_tensor(f"{part}_labels")
            if not fits_together(images, labels, self.info.image_shape):
                raise DataError(f"{self.file} has {part} tensors of the wrong shape or type: {_again(self.info)}")
            refuse_too_large(images.numel(), self.file)
            # cloned: the tensors map the file, and if it changed after this check, they would change or crash
            split = Split(images.clone(), labels.clone())
        if split_checksum(split) != self._recorded[part]:
            raise DataError(f"{self.file} has a wrong checksum in its {part} split: {_again(self.info)}")
        if int(split.labels.min()) < 0 or int(split.labels.max()) >= len(self.class_names):
            raise DataError(
                f"{self.file} has {part} labels outside 0..{len(self.class_names) - 1}: {_again(self.info)}"
            )
        return split

    def read(self, part: Part) -> Split:
        """The split. Its checksum is recorded already, so there is nothing to keep."""
        return self.load(part)

    def checksum(self, part: Part) -> str:
        """The recorded one; nothing is read."""
        return self._recorded[part]


def write_packed(info: DataInfo, class_names: tuple[str, ...], train: Split, test: Split, target: Path) -> None:
    """Write both splits into one new file, which appears whole or not at all."""
    tensors = {
        "train_images": train.images,
        "train_labels": train.labels,
        "test_images": test.images,
        "test_labels": test.labels,
    }
    metadata = {
        "format": FORMAT,
        "name": info.name,
        "class_names": json.dumps(class_names, ensure_ascii=False),
        "train_sha256": split_checksum(train),
        "test_sha256": split_checksum(test),
    }
    write_whole(tensors, metadata, target)


def _again(info: DataInfo) -> str:
    return f"remove it and run `vmcr2 data pack {info.name} --from FOLDER`"
