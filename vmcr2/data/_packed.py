"""Packed data sets: one safetensors file each, with four tensors and their description."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from .._shared import atomic
from ._catalogue import DataInfo
from ._errors import DataError
from ._split import Part, Reader, Split, split_checksum

FORMAT = "vmcr2-data-1"


def packed_name(info: DataInfo) -> str:
    """The file name of a packed data set."""
    return f"{info.name}.safetensors"


class PackedReader(Reader):
    """A packed file. A split is two tensors, and its checksum is verified whenever it is read."""

    def __init__(self, info: DataInfo, path: Path) -> None:
        metadata = _metadata(path)
        if metadata.get("format") != FORMAT:
            raise DataError(f"{path} is not a data set packed by this version: {_again(info)}")
        if metadata.get("name") != info.name:
            raise DataError(f"{path} holds {metadata.get('name')}, not {info.name}: name another file")
        super().__init__(path, _class_names(metadata.get("class_names", ""), path, info), info.image_shape)
        self.info = info
        self.file = path
        self._recorded: dict[Part, str] = {
            "train": metadata.get("train_sha256", ""),
            "test": metadata.get("test_sha256", ""),
        }

    def load(self, part: Part) -> Split:
        """The two tensors of one split; the file is mapped, so the other split's bytes are not read."""
        try:
            with safe_open(self.file, framework="pt") as handle:
                # cloned: the tensors map the file, and if it changed after this check, they would change or crash
                images = handle.get_tensor(f"{part}_images").clone()
                labels = handle.get_tensor(f"{part}_labels").clone()
        except (SafetensorError, OSError) as error:
            raise DataError(f"{self.file} cannot be read ({error}): {_again(self.info)}") from error
        split = Split(images, labels)
        if (
            images.dtype != torch.uint8
            or labels.dtype != torch.int64
            or tuple(images.shape) != (len(labels), *self.info.image_shape)
            or len(labels) == 0
        ):
            raise DataError(f"{self.file} has {part} tensors of the wrong shape or type: {_again(self.info)}")
        if split_checksum(split) != self._recorded[part]:
            raise DataError(f"{self.file} has a wrong checksum in its {part} split: {_again(self.info)}")
        if int(labels.min()) < 0 or int(labels.max()) >= len(self.class_names):
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
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic(target) as temporary:
            save_file(tensors, temporary, metadata)
    except (SafetensorError, OSError) as error:
        raise DataError(f"{target} cannot be written ({error}): name another target") from error


def _metadata(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, framework="pt") as handle:
            return handle.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is not a whole safetensors file ({error}): pack the data again") from error


def _class_names(text: str, path: Path, info: DataInfo) -> tuple[str, ...]:
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path} has no class names: {_again(info)}")
    return tuple(names)


def _again(info: DataInfo) -> str:
    return f"remove it and run `vmcr2 data pack {info.name} --from FOLDER`"
