"""Finds, opens, packs and verifies data sets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ._catalogue import DataInfo, describe, needed
from ._cifar import find_cifar, open_archive
from ._digits import DigitsReader
from ._errors import DataError
from ._idx import find_idx
from ._known_reader import refuse_other_md5
from ._packed import PackedReader, packed_name, write_packed
from ._source import Source
from ._split import Reader, Split, joint_checksum
from ._tiny_imagenet import TinyImageNetReader, find_tiny_imagenet
from ._workers import Progress

_FINDERS: dict[str, Callable[[DataInfo, Path], Reader | None]] = {
    "mnist": find_idx,
    "fashion-mnist": find_idx,
    "cifar10": find_cifar,
    "cifar100": find_cifar,
    "tiny-imagenet": find_tiny_imagenet,
}
# where torchvision puts what it downloads, below the folder it is given
_SUBFOLDERS = {"mnist": ("MNIST/raw",), "fashion-mnist": ("FashionMNIST/raw",)}


def open_data(name: str, path: Path | str | None = None) -> Source:
    """Open a data set by name, without reading its images.

    ``path`` is a packed file, a folder that has one, or the raw files: a folder with them or CIFAR's .tar.gz. With a
    path nothing else is searched; without one $VMCR2_DATA, ./data and ~/.cache/vmcr2 are, in this order.

    >>> digits = open_data("digits")
    >>> digits.train().images.shape, digits.test().labels.shape, digits.num_classes
    (torch.Size([1437, 1, 8, 8]), torch.Size([360]), 10)
    """
    info = describe(name)
    if name == "digits":
        if path:  # a run would record it as the place of its images
            raise DataError(
                f"digits is part of scikit-learn and needs no path, got {path}: leave --data (data_path) out"
            )
        return _source(info, DigitsReader(info))
    places = [_place(path)] if path else _default_places()
    for place in places:
        reader = _find_packed(info, place) or _find_raw(info, place)
        if reader is not None:
            return _source(info, reader)
    looked = ", ".join(str(place) if place.exists() else f"{place} (does not exist)" for place in places)
    raise DataError(
        f"{info.title} was not found in {looked}: it needs {packed_name(info)}, which "
        f"`vmcr2 data pack {name} --from FOLDER` makes from a folder with {needed(info)}; "
        "use --data or VMCR2_DATA to say where it is"
    )


def pack(name: str, source: Path | str, target: Path | str, *, progress: Progress | None = None) -> Path:
    """Turn raw files into one file that loads in a second; ``target`` is that file, or the folder to put it in.

    ``progress`` is called while images are decoded, which only Tiny ImageNet needs.
    """
    info = describe(name)
    if name == "digits":
        raise DataError("digits is embedded in scikit-learn: there is nothing to pack")
    source, target = _place(source), _place(target)
    reader = _find_raw(info, source)
    if reader is None:
        raise DataError(f"{source} has no {info.title}: it needs {needed(info)}")
    if target.is_dir() or target.suffix != ".safetensors":
        target = target / packed_name(info)
    if target.exists():
        raise DataError(f"{target} already exists: remove it, or name another target")
    if isinstance(reader, TinyImageNetReader):
        reader.progress = progress
    train, test = reader.read("train"), reader.read("test")
    _remark(info, reader, train, test)  # now, because the md5 of raw files says nothing about the packed one
    write_packed(info, reader.class_names, train, test, target)
    return target


def verify(name: str, path: Path | str | None = None) -> str:
    """Read everything, compare it with every known checksum, and describe it in one line.

    Fewer or more images than published are no error: the line says so. Data of the published size must have the
    published content, where that is known.

    >>> print(verify("digits")[:56])
    digits: 1437 + 360 images of 1×8×8, 10 classes, as publi
    """
    info = describe(name)
    source = open_data(name, path)
    train, test = source.train(), source.test()
    remark = _remark(info, source._reader, train, test)
    shape = "×".join(map(str, source.sample_shape))
    return (
        f"{name}: {len(train.labels)} + {len(test.labels)} images of {shape}, {source.num_classes} classes, {remark}; "
        f"sha256 {source.checksum}; {source.path or 'embedded in scikit-learn'}"
    )


def _remark(info: DataInfo, reader: Reader, train: Split, test: Split) -> str:
    """How two splits compare with what was published; an error if they have its size but not its content."""
    sizes = len(train.labels), len(test.labels), len(reader.class_names)
    if sizes != (info.train_size, info.test_size, info.classes):
        return f"not the published {info.train_size} + {info.test_size} images of {info.classes} classes"
    if info.content is not None:
        found = joint_checksum(reader.checksum("train"), reader.checksum("test"))
        if found != info.content:
            raise DataError(
                f"{reader.path or 'scikit-learn'} holds {info.title} of the published size but other content "
                f"(sha256 {found}, expected {info.content}): fetch the raw files again"
            )
        return "as published"
    return "as published" if refuse_other_md5(info, reader.raw_files()) else "sizes as published"


def _source(info: DataInfo, reader: Reader) -> Source:
    return Source(info.name, reader.path, reader.class_names, reader)


def _default_places() -> list[Path]:
    named = os.environ.get("VMCR2_DATA")
    return [*([_place(named)] if named else []), Path("data"), _place("~/.cache/vmcr2")]


def _place(path: Path | str) -> Path:
    """A path that a person has given. A shell does not expand the ~ of ``--data=~/x``."""
    return Path(os.path.expanduser(path))


def _find_packed(info: DataInfo, place: Path) -> Reader | None:
    file = place / packed_name(info) if place.is_dir() else place
    return PackedReader(info, file) if file.is_file() and file.suffix == ".safetensors" else None


def _find_raw(info: DataInfo, place: Path) -> Reader | None:
    if place.is_file() and place.name.endswith((".tar.gz", ".tgz")):
        return open_archive(info, place)
    # the set's own folder first: MNIST and Fashion-MNIST have files of the same names
    for folder in (place / info.name, *(place / sub for sub in _SUBFOLDERS.get(info.name, ())), place):
        reader = _FINDERS[info.name](info, folder)
        if reader is not None:
            return reader
    return None
