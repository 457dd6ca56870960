"""Data sets as tensors: known ones and people's own; packed files; augmentation on the device."""

from ._augment import augment_crop, augment_resized_crop, flip_only, normalize, plain
from ._catalogue import DATASETS, DataInfo, describe as describe
from ._check_folder import check_folder as check_folder
from ._check_table import check_table as check_table
from ._class_batches import ClassBatches as ClassBatches, ClassBatchSampler
from ._dataset import from_dataset
from ._errors import DataError
from ._example import Example as Example, write_example as write_example
from ._findings import Findings as Findings
from ._folder import from_folder
from ._from_arrays import from_arrays
from ._holdout import (
    aside_rows as aside_rows,
    calibration_count as calibration_count,
    can_be_parted as can_be_parted,
    held_out_rows as held_out_rows,
    hold_out as hold_out,
    parted as parted,
    stratified as stratified,
    with_label_noise as with_label_noise,
)
from ._memory import free_memory as free_memory
from ._new_pictures import (
    Block as Block,
    Form as Form,
    UnreadableError as UnreadableError,
    is_pillow as is_pillow,
    new_picture_parts as new_picture_parts,
    new_pictures as new_pictures,
    picture_blocks as picture_blocks,
    picture_files as picture_files,
    picture_from_bytes as picture_from_bytes,
)
from ._open import open_own as open_own, open_settings as open_settings
from ._pictures import Pictures as Pictures
from ._preparation import Preparation
from ._resample import resize_matrix as resize_matrix
from ._settings import (
    FOLDER as FOLDER,
    OWN as OWN,
    ROWS as ROWS,
    TABLE as TABLE,
    DataSettings as DataSettings,
)
from ._source import Source
from ._sources import open_data, pack, verify
from ._split import Part as Part, Reader as Reader, Shape as Shape, Split
from ._streaming import StreamedPictures as StreamedPictures, fits_on as fits_on
from ._survey import Fit as Fit
from ._table_files import TABLE_SUFFIXES as TABLE_SUFFIXES, read_columns as read_columns
from ._tables import from_table
from ._workers import Progress as Progress

__all__ = ["DATASETS", "DataError", "DataInfo", "Preparation", "Source", "Split", "open_data", "pack", "verify"]
__all__ += ["from_arrays", "from_dataset", "from_folder", "from_table"]
__all__ += ["ClassBatchSampler", "augment_crop", "augment_resized_crop", "flip_only", "normalize", "plain"]
