"""Data sets as uint8 tensors, packed into one file each, and augmentation on the device."""

from ._augment import augment_crop, augment_resized_crop, flip_only, normalize, plain
from ._catalogue import DATASETS, DataInfo
from ._errors import DataError
from ._sources import Source, open_data, pack, verify
from ._split import Split

__all__ = [
    "DATASETS",
    "DataError",
    "DataInfo",
    "Source",
    "Split",
    "augment_crop",
    "augment_resized_crop",
    "flip_only",
    "normalize",
    "open_data",
    "pack",
    "plain",
    "verify",
]
