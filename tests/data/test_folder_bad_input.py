"""Folders that cannot be used, and pictures that cannot: one sentence each, which names the place and the way out."""

from __future__ import annotations

import io
import os
import struct
import unicodedata
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from picture_folders import Image, write_classes

from vmcr2.data import DataError, from_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VMCR2_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def refused(message: str, path: Path | str, **options: Any) -> str:
    """The sentence; nothing may be written for a folder that is refused."""
    with pytest.raises(DataError, match=message) as caught:
        from_folder(path, **options)
    said = str(caught.value)
    assert "\n" not in said
    assert ": " in said, "it says what to do"
    return said


def empty_folder(root: Path) -> None:
    root.mkdir()


def no_pictures(root: Path) -> None:
    (root / "a").mkdir(parents=True)
    (root / "a" / "notes.txt").write_text("x")


def no_class_folders(root: Path) -> None:
    write_classes(root.parent, (root.name,))


def no_class_folders_in_train(root: Path) -> None:
    write_classes(root, ("train", "test"))


def one_class(root: Path) -> None:
    write_classes(root, ("cat",))


def one_class_in_train(root: Path) -> None:
    write_classes(root / "train", ("cat",))
    write_classes(root / "test", ("cat",))


def empty_class(root: Path) -> None:
    write_classes(root)
    (root / "zebra").mkdir()


def empty_test(root: Path) -> None:
    write_classes(root / "train")
    (root / "test" / "cat").mkdir(parents=True)


def two_cases(root: Path) -> None:
    write_classes(root, ("Cat", "cat", "dog"))


def two_accents(root: Path) -> None:
    write_classes(root, tuple(unicodedata.normalize(form, "é") for form in ("NFC", "NFD")))


def unknown_in_test(root: Path) -> None:
    write_classes(root / "train")
    write_classes(root / "test", ("cat", "bird"))


def unknown_in_val(root: Path) -> None:
    write_classes(root / "train")
    write_classes(root / "test")
    write_classes(root / "dev", ("Dog",))


def no_train(root: Path) -> None:
    write_classes(root / "test")
    write_classes(root / "val")


def two_trains(root: Path) -> None:
    write_classes(root / "train")
    write_classes(root / "Training")


def one_picture_each(root: Path) -> None:
    write_classes(root, each=1)


def linked_class(root: Path) -> None:
    write_classes(root)
    write_classes(root.parent / "elsewhere", ("bird",))
    (root / "bird").symlink_to(root.parent / "elsewhere" / "bird")


def only_links(root: Path) -> None:
    write_classes(root.parent / "elsewhere")
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        (root / name / "1.png").symlink_to(root.parent / "elsewhere" / name / f"{name}0.png")


def not_utf8(root: Path) -> None:
    write_classes(root)
    os.rename(os.fsencode(root / "cat"), os.path.join(os.fsencode(root), b"k\xe4tze"))


TREES: dict[Callable[[Path], None], str] = {
    empty_folder: "holds no pictures: give a folder",
    no_pictures: r"holds no pictures, only files such as a/notes\.txt: give",
    no_class_folders: r"holds 5 pictures directly \(x0\.png, x1\.png and 3 more\): put them into folders",
    no_class_folders_in_train: "x/test holds pictures directly: put them into folders",
    one_class: r"has one class \(cat\): classification needs at least two",
    one_class_in_train: r"has one class \(train/cat\): classification needs at least two",
    empty_class: r"class folders without pictures \(zebra\): fill or remove",
    empty_test: "a folder for test without pictures: fill it or remove it",
    two_cases: "the class folders Cat and cat, which differ only in upper and lower case: rename",
    two_accents: "which differ only in the form of their accents: rename",
    unknown_in_test: r"classes in test that train lacks \(test/bird\): rename or remove",
    unknown_in_val: r"classes in val that train lacks \(dev/Dog\): rename or remove",
    no_train: "has test, val but no training pictures: add a folder train",
    two_trains: "train, Training, which all mean train: keep one",
    one_picture_each: "one picture in every class, so none is left to test on: add",
    linked_class: "x/bird is a link out of .*: move or copy",
    only_links: "holds only links that lead out of it .*: copy",
    not_utf8: "has a name that is not UTF-8: rename it",
}


@pytest.mark.parametrize("make", TREES, ids=lambda make: make.__name__)
def test_a_folder_that_cannot_be_used(tmp_path: Path, make: Callable[[Path], None], cache: Path) -> None:
    try:
        make(tmp_path / "x")
    except (OSError, FileExistsError) as error:  # a file system that takes only one case, one form, or UTF-8
        pytest.skip(str(error))
    if len(list((tmp_path / "x").iterdir())) == 1 and make in (two_cases, two_accents):
        pytest.skip("this file system takes the two names for one")
    said = refused(TREES[make], tmp_path / "x")
    assert str(tmp_path / "x") in said
    assert not cache.exists()


def test_what_is_no_folder(tmp_path: Path) -> None:
    refused("is a URL, and vmcr2 reads only local folders: download it", "https://example.org/data.zip")
    refused("does not exist: give a folder", tmp_path / "nothing")
    (tmp_path / "file.zip").write_text("x")
    refused(r"file\.zip is a file: give the folder", tmp_path / "file.zip")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 0}, "image_size must lie between 1 and 4096, got 0"),
        ({"image_size": 5000}, "image_size must lie between"),
        ({"channels": 2}, "channels must be 1 .* or 3 .*, got 2"),
        ({"channels": 0}, "channels must be 1 .* or 3 .*, got 0"),
        ({"fit": "zoom"}, "fit must be crop, stretch or pad, got 'zoom'"),
        ({"test_share": 0.0}, "test_share must lie between 0 and 1, got 0.0"),
        ({"test_share": 1.0}, "test_share must lie between 0 and 1"),
        ({"test_share": float("nan")}, "test_share must lie between 0 and 1"),
    ],
)
def test_options_out_of_range(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    refused(message, write_classes(tmp_path / "x"), **options)


def test_the_cache_must_be_elsewhere_and_writable(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "x")
    refused("lies among the pictures .*: set VMCR2_CACHE", root, cache=root / "cache")
    (tmp_path / "taken").write_text("a file where a folder should be")
    refused("the cache .*taken.* cannot be written .*: set VMCR2_CACHE", root, cache=tmp_path / "taken")
    assert len(from_folder(root).train().labels) == 8


def test_a_full_disk_is_told_before_packing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    full = type("Usage", (), {"free": 100})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    refused("needs 0.0 GB in .*: set VMCR2_CACHE to a folder with more space", write_classes(tmp_path / "x"))


# pictures


def png(width: int, height: int) -> bytes:
    """A PNG whose header claims a size, with almost nothing in it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def cut_jpeg() -> bytes:
    stream = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(stream, "JPEG")
    return stream.getvalue()[:800]


def fractions() -> bytes:
    stream = io.BytesIO()
    Image.new("F", (8, 8), 0.5).save(stream, "TIFF")
    return stream.getvalue()


def many_bits() -> bytes:
    stream = io.BytesIO()
    Image.new("I", (8, 8), 70_000).save(stream, "TIFF")
    return stream.getvalue()


BROKEN = {
    "text": (b"this is no picture", "it is no picture of a known format"),
    "nothing": (b"", "it is no picture of a known format"),
    "a web page": (b"<html>404 not found</html>", "it is no picture of a known format"),
    "a cut JPEG": (cut_jpeg(), "truncated"),
    "100 megapixels": (png(10_000, 10_000), "it has more than 80 million pixels: make it smaller"),
    "400 megapixels": (png(20_000, 20_000), "it has more than 80 million pixels: make it smaller"),
    "too little in it": (png(8, 8), "truncated"),
    "fractions": (fractions(), "its pixels are fractions without a known range: save it with 8 bits"),
    "32 bits": (many_bits(), "its pixels have more than 16 bits: save it with 8"),
    "a PostScript program": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", "it is no picture of a known"),
}


@pytest.mark.parametrize("few", [True, False], ids=["in this process", "in workers"])
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_picture(tmp_path: Path, kind: str, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped with a note that says why, and refused by strict reading: before and after it was packed."""
    if not few:
        monkeypatch.setattr("vmcr2.data._workers._FEW", 0)
    content, reason = BROKEN[kind]
    root = write_classes(tmp_path / "a b ü")
    (root / "cat" / "bäd one.jpg").write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pillow warns of large pictures
        said = refused("cannot be decoded", root, strict=True)
        assert str(root / "cat" / "bäd one.jpg") in said
        assert reason in said
        source = from_folder(root)
    labels = [*source.train().labels.tolist(), *source.test().labels.tolist()]
    assert sorted(labels) == [0] * 5 + [1] * 5
    (note,) = [note for note in source.notes if "cannot be decoded (1, all listed in" in note]
    assert reason in note.split("cat/bäd one.jpg: ")[1]
    assert refused("cannot be decoded", root, strict=True) == said


def test_strict_reading_refuses_what_else_is_skipped(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "x" / "data")
    from_folder(root, strict=True)
    (root / "cat" / "x.png").symlink_to(tmp_path)
    refused("cat/x.png is a link out of the folder: copy", root, strict=True)
    (root / "cat" / "x.png").unlink()
    (root / "cat" / "x.txt").write_text("x")
    refused("cat/x.txt is no picture: remove it", root, strict=True)
    (root / "cat" / "x.txt").unlink()
    Image.new("L", (8, 8)).save(root / "x.png")
    refused("data/x.png lies in no class folder: move it", root, strict=True)


def test_nothing_that_can_be_decoded(tmp_path: Path, cache: Path) -> None:
    root = write_classes(tmp_path / "x")
    for path in root.rglob("*.png"):
        path.write_bytes(b"no")
    refused("none of the 10 pictures in .* can be decoded: `vmcr2 data check`", root)


def test_a_class_whose_pictures_are_all_broken(tmp_path: Path, cache: Path) -> None:
    root = write_classes(tmp_path / "x")
    for path in (root / "dog").iterdir():
        path.write_bytes(b"no")
    refused("no training picture of the class dog that can be decoded: `vmcr2 data check`", root)
    assert list(cache.rglob("*.safetensors")) == []
    assert list(cache.rglob("*.tmp")) == []


def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "x")
    (root / "cat").chmod(0)
    try:
        if os.access(root / "cat", os.R_OK):
            pytest.skip("this user may read everything")
        refused(r"x/cat cannot be read \(.*\): change its permissions", root)
    finally:
        (root / "cat").chmod(0o755)
