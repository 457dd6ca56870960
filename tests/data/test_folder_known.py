"""MNIST and CIFAR-10 written as lossless pictures are read as the same tensors. Where the data are present:

VMCR2_TEST_DATA=~/data pytest tests/data/test_folder_known.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from picture_folders import write_split

from vmcr2.data import DataError, Source, from_folder, open_data

PLACE = os.environ.get("VMCR2_TEST_DATA")


def known(name: str) -> Source:
    if PLACE is None:
        pytest.skip("VMCR2_TEST_DATA does not say where the data are")
    try:
        return open_data(name, PLACE)
    except DataError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_pictures_without_loss_are_the_known_data_set(name: str, tmp_path: Path) -> None:
    source = known(name)
    for part in ("train", "test"):
        write_split(tmp_path / part, getattr(source, part)(), source.class_names)
    own = from_folder(tmp_path)
    assert own.class_names == source.class_names
    for part in ("train", "test"):
        one, two = getattr(own, part)(), getattr(source, part)()
        assert torch.equal(one.inputs, two.inputs)
        assert torch.equal(one.labels, two.labels)
    assert own.checksum == source.checksum
