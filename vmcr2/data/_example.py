"""A folder of pictures to try things with: scikit-learn's digits as files, one folder for each class."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ._errors import DataError
from ._sources import open_data

FOREIGN = 20
"""pictures of noise among those to predict: something to refuse"""
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Example(NamedTuple):
    """What was written."""

    folder: Path
    """pictures to train on, in folders of their classes"""
    new: Path
    """pictures that are not among them, to predict: digits, and some of noise"""


def write_example(folder: Path | str) -> Example:
    """Write the training digits into ``folder``/CLASS; the test digits, and pictures of noise, into ``folder``-new.

    Both must not exist, or be empty: nothing is overwritten.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     made = write_example(f"{place}/photos")
    ...     len(list(made.folder.glob("*/*.png"))), len(list(made.new.glob("*.png")))
    (1437, 380)
    """
    place = Path(folder).expanduser()
    example = Example(place, place.with_name(f"{place.name}-new"))
    for target in example:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise DataError(f"{target} exists and is not empty: give another folder, or remove it")
    source = open_data("digits")
    train, test = source.train(), source.test()
    try:
        for name in NAMES:
            (example.folder / name).mkdir(parents=True, exist_ok=True)
        example.new.mkdir(exist_ok=True)
        for at, (image, label) in enumerate(zip(train.images, train.labels.tolist(), strict=True)):
            _write(image, example.folder / NAMES[label] / f"{at:04}.png")
        for at, (image, label) in enumerate(zip(test.images, test.labels.tolist(), strict=True)):
            _write(image, example.new / f"{at:03}-{NAMES[label]}.png")
        noise = torch.randint(0, 256, (FOREIGN, 1, 8, 8), generator=torch.Generator().manual_seed(0))
        for at, image in enumerate(noise.to(torch.uint8)):
            _write(image, example.new / f"noise-{at:02}.png")
    except OSError as error:
        raise DataError(f"cannot write {place}: {error.strerror or error}") from error
    return example


def _write(image: Tensor, path: Path) -> None:
    from PIL import Image

    Image.fromarray(image[0].numpy()).save(path)
