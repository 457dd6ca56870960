"""Data sets as uint8 tensors, packed into one file each, and augmentation on the device."""

from ._augment import augment_crop, augment_resized_crop, flip_only, normalize, plain
from ._catalogue import DATASETS, DataInfo, describe
from ._errors import DataError
from ._holdout import hold_out, stratified
from ._pictures import Pictures
from ._settings import DataSettings
from ._sources import Source, open_data, pack, verify
from ._split import Part, Reader, Split

__all__ = [
    "DATASETS",
    "DataError",
    "DataInfo",
    "DataSettings",
    "Part",
    "Pictures",
    "Reader",
    "Source",
    "Split",
    "augment_crop",
    "augment_resized_crop",
    "describe",
    "flip_only",
    "hold_out",
    "normalize",
    "open_data",
    "pack",
    "plain",
    "stratified",
    "verify",
]
