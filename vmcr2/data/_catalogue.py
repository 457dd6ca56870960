"""The data sets the readers know: their shapes, sizes, files and published checksums."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from ._errors import DataError


@dataclass(frozen=True)
class DataInfo:
    """What is known of a data set before anything is read."""

    name: str
    title: str
    classes: int
    image_shape: tuple[int, int, int]
    """(channels, height, width)"""
    train_size: int
    test_size: int
    files: tuple[str, ...] = ()
    """the raw files that a person needs; alternatives are separate entries"""
    md5: Mapping[str, str] = field(default_factory=dict)
    """published md5 of raw files, by file name or by folder/name"""
    content: str | None = None
    """``Source.checksum`` of the published data: computed from files whose published md5 matched"""
    splits: Mapping[str, str] = field(default_factory=dict)
    """the same for "train" and "test" alone"""


def _idx_md5(*digests: str) -> dict[str, str]:
    return dict(zip(IDX_FILES, digests, strict=True))


IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)

_ALL = (
    DataInfo(
        "digits",
        "Optical recognition of handwritten digits, embedded in scikit-learn",
        classes=10,
        image_shape=(1, 8, 8),
        train_size=1437,
        test_size=360,
        content="8c4d3cd4a3b11e56d1deaefbf8199b6cba4580dea680f332b4bca10b81d8cc77",
    ),
    DataInfo(
        "mnist",
        "MNIST",
        classes=10,
        image_shape=(1, 28, 28),
        train_size=60_000,
        test_size=10_000,
        files=IDX_FILES,
        md5=_idx_md5(
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        content="dbb9255fe410e6a25ce67b0aaaea6e2a23586ceee4456339763033ce03d561c3",
        splits={
            "train": "71d3be42f93ad20da73bb4a9744d0bebdaa6832be56dc010e21940e72c4c8b1e",
            "test": "4718853ea946af656684509414983beff2e65cf414265c27966161014c003b8b",
        },
    ),
    DataInfo(
        "fashion-mnist",
        "Fashion-MNIST",
        classes=10,
        image_shape=(1, 28, 28),
        train_size=60_000,
        test_size=10_000,
        files=IDX_FILES,
        md5=_idx_md5(
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
    DataInfo(
        "cifar10",
        "CIFAR-10",
        classes=10,
        image_shape=(3, 32, 32),
        train_size=50_000,
        test_size=10_000,
        files=("cifar-10-binary.tar.gz or cifar-10-python.tar.gz, as they are or unpacked",),
        md5={
            "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
            "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
            "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
            "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
            "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
    DataInfo(
        "cifar100",
        "CIFAR-100, fine labels",
        classes=100,
        image_shape=(3, 32, 32),
        train_size=50_000,
        test_size=10_000,
        files=("cifar-100-binary.tar.gz or cifar-100-python.tar.gz, as they are or unpacked",),
        md5={
            "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
            "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
            "cifar-100-binary/train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
            "cifar-100-binary/test.bin": "4499cfba6c016c1be1438163640a0898",
            "cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d",
            "cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
        content="047d7022bd39cd5e7f710bc0d60e81ff9a55b2498df082bd86a1e85582beb35a",
        splits={
            "train": "f317bded07d1d3a909562a1178725e166e72f0c555c98e0a08304de390c326c2",
            "test": "c4e5d0f8abe8dec50f355ad5e622c815abd93293ca7b5ab9fd56af32924c2061",
        },
    ),
    DataInfo(
        "tiny-imagenet",
        "Tiny ImageNet, 200 classes; the validation images are the test set",
        classes=200,
        image_shape=(3, 64, 64),
        train_size=100_000,
        test_size=10_000,
        files=("the unpacked folder tiny-imagenet-200 with wnids.txt, words.txt, train and val",),
    ),
)

DATASETS: dict[str, DataInfo] = {info.name: info for info in _ALL}


def describe(name: str) -> DataInfo:
    """The catalogue's entry, or an error that suggests the nearest name."""
    if name in DATASETS:
        return DATASETS[name]
    near = difflib.get_close_matches(name, DATASETS, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise DataError(f"there is no data set {name!r}{hint}: there are {', '.join(DATASETS)}")


def needed(info: DataInfo) -> str:
    """The raw files in words, for an error."""
    return ", ".join(info.files)
