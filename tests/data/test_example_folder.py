"""The folder that people try things with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vmcr2.data import DataError, from_folder, open_data, write_example


def test_it_has_the_digits_in_class_folders(tmp_path: Path) -> None:
    made = write_example(tmp_path / "photos")
    source = from_folder(made.folder, test_share=0.2, cache=tmp_path / "cache")
    assert len(source.class_names) == 10
    assert len(list(made.folder.rglob("*.png"))) == 1437
    digits = open_data("digits").train()
    counts = {name: len(list((made.folder / name).glob("*.png"))) for name in source.class_names}
    assert sorted(counts.values()) == sorted(torch.bincount(digits.labels).tolist())
    new = [path.name for path in made.new.iterdir()]
    assert sum("noise" in name for name in new) == 20
    assert len(new) == 380


@pytest.mark.parametrize("taken", ["photos", "photos-new"])
def test_nothing_is_overwritten(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).mkdir()
    (tmp_path / taken / "mine.txt").write_text("kept")
    with pytest.raises(DataError, match=r"exists and is not empty"):
        write_example(tmp_path / "photos")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["mine.txt"]
