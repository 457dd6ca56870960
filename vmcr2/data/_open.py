"""Opens what a configuration names: a known data set, a folder of pictures, or a table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._errors import DataError
from ._folder import from_folder
from ._regular import check_regular
from ._settings import FOLDER, OWN, TABLE, DataSettings
from ._source import Source
from ._sources import open_data
from ._tables import from_table
from ._workers import Progress


def open_own(
    path: Path | str, given: Mapping[str, Any] | None = None, *, strict: bool = False, progress: Progress | None = None
) -> Source:
    """A person's own data: a folder with a folder of pictures for each class, or a table.

    Args:
        path: the folder, or the .csv, .parquet, .npz or .npy file.
        given: settings by their flat names; those that say how to read the data are used.
        strict: whether a file that cannot be read is an error. Otherwise it is skipped, and the source's notes say so.
        progress: is told how far the reading is.
    """
    given = given or {}
    if "://" in str(path):
        raise DataError(f"{path} is a web address: download the data, and give the folder or the file")
    place = Path(os.path.expanduser(path))
    split = {name: given[name] for name in ("test_share", "split_seed") if name in given}
    if place.is_dir():
        # who says how large the network's pictures are means the stored ones too: they are resized once
        size = given.get("stored_size") or given.get("image_size")
        how = {name: given[name] for name in ("channels", "fit") if name in given}
        return from_folder(place, image_size=size, **how, **split, strict=strict, progress=progress)
    if place.is_file():
        return from_table(place, given.get("label"), test=given.get("test_path"), **split)
    if place.exists():
        check_regular(place)  # says what it is instead
    raise DataError(f"there is no folder or file {path}: check the path")


def open_settings(settings: DataSettings, *, progress: Progress | None = None) -> Source:
    """The data of a configuration."""
    if settings.name not in OWN:
        return open_data(settings.name, settings.path)
    if settings.name not in (FOLDER, TABLE):
        raise DataError(
            f"the data of this run were made in Python ({settings.name}), and its folder does not have them: give them "
            "again with source="
        )
    if settings.path is None:
        raise DataError(f"data is {settings.name}, but data_path does not say where: give the folder or the file")
    try:
        return open_own(settings.path, settings.reading(), progress=progress)
    except DataError as error:
        if Path(settings.path).exists():
            raise
        raise DataError(f"{settings.path} is gone: say with --data where the data are now") from error
