"""A folder of pictures as a data set: what is read, in which order, in which shape."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from picture_folders import write_split

from vmcr2.data import Source, from_folder, open_data


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def same(folder: Source, known: Source) -> None:
    for mine, theirs in ((folder.train(), known.train()), (folder.test(), known.test())):
        assert torch.equal(mine.images, theirs.images)
        assert torch.equal(mine.labels, theirs.labels)
    assert folder.class_names == known.class_names
    assert folder.sample_shape == known.sample_shape
    assert folder.checksum == known.checksum


def test_digits_as_png_are_the_built_in_digits(tmp_path: Path, cache: Path) -> None:
    digits = open_data("digits")
    write_split(tmp_path / "digits" / "train", digits.train(), digits.class_names)
    write_split(tmp_path / "digits" / "test", digits.test(), digits.class_names)
    source = from_folder(tmp_path / "digits", cache=cache)
    same(source, digits)
    assert source.notes == ()
