"""A look at a folder before training: what is there, and what is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from picture_folders import Image, noise, write_classes

from vmcr2.data import DataError, check_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two classes of 6 and 3 training pictures, 2 + 2 test pictures, nothing wrong."""
    write_classes(tmp_path / "x" / "train", ("cat",), each=6, size=(10, 20))
    write_classes(tmp_path / "x" / "train", ("dog",), each=3, size=(30, 15), seed=1)
    write_classes(tmp_path / "x" / "test", each=2, size=(8, 8), seed=2)
    return tmp_path / "x"


def test_a_good_folder(root: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    before = {path: path.stat().st_mtime_ns for path in root.parent.rglob("*")}
    found = check_folder(root, progress=lambda *call: calls.append(call))
    assert found.title == str(root)
    assert found.problems == ()
    rows = dict(found.rows)
    assert rows["train"] == "9 pictures in 2 classes"
    assert rows["train: largest and smallest class"] == "6 and 3 pictures, 2 : 1"
    assert rows["train: smallest / median / largest"] == "20×10 / 20×10 / 15×30"
    assert rows["train: modes"] == "L 9"
    assert rows["test"] == "4 pictures in 2 classes"
    assert rows["test: smallest / median / largest"] == "all 8×8"
    assert rows["unreadable"] == "0"
    assert rows["same file in train and test"] == rows["same pixels in train and test"] == "0"
    assert calls == [("checking", 13, 13)]
    assert {path: path.stat().st_mtime_ns for path in root.parent.rglob("*")} == before, "it writes nothing"


def test_equal_bytes_and_equal_pixels(root: Path) -> None:
    """Bytes: a copy. Pixels: the same picture as a BMP, as RGB, and turned by EXIF."""
    shutil.copy(root / "train" / "cat" / "cat0.png", root / "test" / "cat" / "copy.png")
    picture = Image.open(root / "train" / "cat" / "cat1.png")
    picture.save(root / "test" / "cat" / "same.bmp")
    picture.convert("RGB").save(root / "test" / "cat" / "colour.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = np.ascontiguousarray(np.rot90(np.asarray(picture)))
    Image.fromarray(turned).save(root / "test" / "cat" / "turned.png", exif=exif.tobytes())
    Image.fromarray(turned).save(root / "test" / "cat" / "other.png")  # turned, and without EXIF another picture
    found = check_folder(root)
    rows = dict(found.rows)
    assert rows["same file in train and test"] == "1 pair: train/cat/cat0.png = test/cat/copy.png"
    assert rows["same pixels in train and test"].startswith("4 pairs: ")
    assert rows["same pixels in train and test"].endswith(" and 1 more")
    assert "other.png" not in str(found)
    (problem,) = found.problems
    assert problem.startswith("4 test pictures are also training pictures (train/cat/cat")


def test_one_tree_is_searched_for_pictures_that_are_there_twice(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "x")
    shutil.copy(root / "cat" / "cat0.png", root / "cat" / "again.png")
    shutil.copy(root / "cat" / "cat0.png", root / "cat" / "more.png")
    found = check_folder(root)
    rows = dict(found.rows)
    assert rows["same file twice"].startswith("3 pairs: cat/again.png = cat/cat0.png, ")
    assert rows["same pixels in two classes"] == "0"
    assert found.problems[0].startswith("Some pictures are there twice (cat/again.png = cat/cat0.png)")


def test_equal_pictures_in_two_classes(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "x")
    shutil.copy(root / "cat" / "cat0.png", root / "dog" / "what.png")
    found = check_folder(root)
    assert dict(found.rows)["same pixels in two classes"] == "1 pair: cat/cat0.png = dog/what.png"
    assert "Equal pictures have different classes (cat/cat0.png = dog/what.png): correct one of them." in found.problems


def test_many_blank_pictures_are_counted_not_listed(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "x")
    for i in range(150):
        Image.new("L", (4, 4)).save(root / "cat" / f"blank{i}.png")
    assert dict(check_folder(root).rows)["same pixels twice"].startswith(f"{150 * 149 // 2} pairs: cat/blank0.png = ")


def test_what_cannot_be_used_is_listed(root: Path) -> None:
    (root / "train" / "cat" / "bad.png").write_bytes(b"no")
    (root / "train" / "cat" / "cat5.png").write_bytes((root / "train" / "cat" / "cat5.png").read_bytes()[:70])
    (root / "train" / "notes.txt").write_text("x")
    (root / "train" / "cat" / "out.png").symlink_to(root.parent)
    Image.fromarray(noise(3, 3)).save(root / "stray.png")
    (root / "docs").mkdir()
    found = check_folder(root)
    rows = dict(found.rows)
    assert rows["train"] == "8 pictures in 2 classes"
    assert rows["unreadable"] == "2"
    assert rows["train/cat/bad.png"] == "it is no picture of a known format"
    assert "train/cat/cat5.png" in rows
    assert rows["files that are no pictures"] == "1: train/notes.txt"
    assert rows["links out of the folder"] == "1: train/cat/out.png"
    assert rows["pictures in no class folder"] == "1: stray.png"
    assert rows["folders beside train"] == "1: docs"
    assert found.problems == (f"2 pictures in {root} cannot be decoded: mend or remove them, or they are skipped.",)


def test_a_class_without_readable_pictures(root: Path) -> None:
    for path in (root / "train" / "dog").iterdir():
        path.write_bytes(b"no")
    assert "train has no readable picture of dog: add some, or remove the class." in check_folder(root).problems


def test_several_problems_are_all_told(root: Path) -> None:
    (root / "train" / "zebra").mkdir()
    write_classes(root / "test", ("bird",))
    (root / "README").write_text("x")
    found = check_folder(root)
    assert len(found.problems) == 2
    assert "class folders without pictures (train/zebra)" in found.problems[0]
    assert "classes in test that train lacks (test/bird)" in found.problems[1]
    assert found.rows == (("files that are no pictures", "1: README"),)


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        check_folder(tmp_path / "nothing")
