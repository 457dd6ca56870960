"""Data sets as uint8 tensors, packed into one file each, and augmentation on the device."""

from ._augment import augment_crop, augment_resized_crop, flip_only, normalize, plain
from ._catalogue import DATASETS, DataInfo, describe as describe
from ._check_folder import check_folder as check_folder
from ._dataset import from_dataset
from ._errors import DataError
from ._findings import Findings as Findings
from ._folder import from_folder
from ._holdout import hold_out as hold_out, stratified as stratified, with_label_noise as with_label_noise
from ._pictures import Pictures as Pictures
from ._settings import DataSettings as DataSettings
from ._source import Source
from ._sources import open_data, pack, verify
from ._split import Part as Part, Reader as Reader, Shape as Shape, Split
from ._survey import Fit as Fit
from ._workers import Progress as Progress

__all__ = [
    "DATASETS",
    "DataError",
    "DataInfo",
    "Source",
    "Split",
    "from_dataset",
    "from_folder",
    "open_data",
    "pack",
    "verify",
]
__all__ += ["augment_crop", "augment_resized_crop", "flip_only", "normalize", "plain"]
