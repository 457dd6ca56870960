"""A folder of pictures as a data set: what is read, in which order, in which shape."""

from __future__ import annotations

import dataclasses
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from data_formats import write_cifar_python, write_mnist
from hypothesis import given, strategies as st
from picture_folders import Image, noise, write_classes, write_split

from vmcr2.data import Form, Source, from_folder, new_pictures, open_data
from vmcr2.data._natural import natural


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VMCR2_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def same(folder: Source, known: Source) -> None:
    for mine, theirs in ((folder.train(), known.train()), (folder.test(), known.test())):
        assert torch.equal(mine.images, theirs.images)
        assert torch.equal(mine.labels, theirs.labels)
    assert folder.sample_shape == known.sample_shape
    assert folder.checksum == known.checksum
    assert folder.train_checksum == known.train_checksum


def test_digits_as_png_are_the_built_in_digits(tmp_path: Path) -> None:
    digits = open_data("digits")
    root = tmp_path / "My digits"
    write_split(root / "train", digits.train(), digits.class_names)
    write_split(root / "test", digits.test(), digits.class_names)
    source = from_folder(root)
    same(source, digits)
    assert source.class_names == digits.class_names
    assert source.notes == ()
    assert (source.name, source.title, source.path) == ("pictures", "My digits", root)
    assert source.settings == {
        "data": "pictures",
        "data_path": str(root),
        "stored_size": 0,
        "channels": 1,
        "fit": "crop",
        "test_share": 0.2,
        "split_seed": 0,
    }


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_known_sets_as_png_are_the_same(tmp_path: Path, name: str) -> None:
    (write_mnist if name == "mnist" else lambda raw: write_cifar_python(raw, 10))(tmp_path / "raw")
    known = open_data(name, tmp_path / "raw")
    names = tuple(sorted(known.class_names))
    assert names == known.class_names
    # the last class everywhere: twelve pictures do not fill ten classes
    used = sorted(set(known.train().labels.tolist()) | set(known.test().labels.tolist()))
    assert used == list(range(10))
    write_split(tmp_path / "png" / "train", known.train(), names)
    write_split(tmp_path / "png" / "test", known.test(), names)
    same(from_folder(tmp_path / "png"), known)


@pytest.mark.parametrize(
    ("train", "val", "test"), [("Train", "VAL", "Test"), ("training", "validation", "eval"), ("trn", "dev", "tst")]
)
def test_splits_by_their_usual_names(tmp_path: Path, train: str, val: str, test: str) -> None:
    for seed, part in enumerate((train, val, test)):
        write_classes(tmp_path / "x" / part, each=2 + seed, seed=seed)
    source = from_folder(tmp_path / "x")
    assert source.has_val
    assert [len(split.labels) for split in (source.train(), source.val(), source.test())] == [4, 6, 8]
    first = [split.images[0, 0].numpy() for split in (source.train(), source.val(), source.test())]
    assert all(np.array_equal(pixels, noise(8, 8, seed=1000 * seed)) for seed, pixels in enumerate(first))
    assert source.notes == ()
    assert len({source.checksum, source.train_checksum}) == 2


def test_validation_serves_as_the_test_set(tmp_path: Path) -> None:
    write_classes(tmp_path / "x" / "train")
    write_classes(tmp_path / "x" / "valid", each=1, seed=1)
    source = from_folder(tmp_path / "x")
    assert not source.has_val
    assert np.array_equal(source.test().images[1, 0], noise(8, 8, seed=1100))
    assert source.notes == ("There is no folder for testing: the validation pictures are the test set.",)


@pytest.mark.parametrize("below", ["", "train"])
def test_one_tree_is_split_in_every_class(tmp_path: Path, below: str) -> None:
    write_classes(tmp_path / "x" / below, ("a", "b"), each=10)
    write_classes(tmp_path / "x" / below, ("c",), each=20, seed=1)
    source = from_folder(tmp_path / "x", test_share=0.3)
    train, test = source.train(), source.test()
    assert train.labels.bincount().tolist() == [7, 7, 14]
    assert test.labels.bincount().tolist() == [3, 3, 6]
    every = {bytes(pixels.numpy()) for split in (train, test) for pixels in split.images}
    assert len(every) == 40, "no picture is lost or on both sides"
    assert "0.3 of every class, 12 pictures, are the test set, drawn with the seed 0." in source.notes[0]
    again = from_folder(tmp_path / "x", test_share=0.3)
    assert torch.equal(again.test().images, test.images)
    other = from_folder(tmp_path / "x", test_share=0.3, split_seed=1)
    assert not torch.equal(other.test().images, test.images)
    assert other.test().labels.bincount().tolist() == [3, 3, 6]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    write_classes(tmp_path / "x", ("bus", "train", "plane"))
    source = from_folder(tmp_path / "x")
    assert source.class_names == ("bus", "plane", "train")


def test_a_class_may_have_folders_in_it(tmp_path: Path) -> None:
    write_classes(tmp_path / "x" / "train" / "n01", ("images",), each=2)
    write_classes(tmp_path / "x" / "train" / "n02", ("deep", "deeper"), each=1, seed=1)
    write_classes(tmp_path / "x" / "test", ("n01", "n02"), each=1, seed=2)
    source = from_folder(tmp_path / "x")
    assert source.class_names == ("n01", "n02")
    assert source.train().labels.tolist() == [1, 1, 0, 0]  # deep0, deeper0, images0, images1


def test_order_of_classes_and_pictures(tmp_path: Path) -> None:
    for place in ("10/img2.png", "2/img10.png", "2/img1.png", "10/b/img1.png", "B/img3.png", "a/IMG4.png"):
        path = tmp_path / "x" / "train" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2), len(place)).save(path)
    shutil.copytree(tmp_path / "x" / "train", tmp_path / "x" / "test")
    source = from_folder(tmp_path / "x")
    assert source.class_names == ("2", "10", "a", "B")
    assert source.train().labels.tolist() == [0, 1, 1, 3, 2, 0]  # img1 of 2 and of 10, img2, img3, IMG4, img10


names = st.lists(st.text(alphabet="ab019éE\u0301 ._٣", min_size=1, max_size=6), min_size=2, max_size=8)


@given(names)
def test_natural_order_is_one_order(found: list[str]) -> None:
    backwards = found[::-1]
    assert sorted(backwards, key=natural) == sorted(found, key=natural), "whatever order the file system gives"
    assert len({natural(name) for name in found}) == len(set(found)), "equal keys are equal names"


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.text(alphabet="abX_-", max_size=3), st.integers(0, 3))
def test_numbers_are_ordered_by_value(a: int, b: int, before: str, zeros: int) -> None:
    names = [f"{before}{a}.png", f"{before}{'0' * zeros}{b}.png"]
    assert a == b or (natural(names[0]) < natural(names[1])) == (a < b)


def test_accents_in_two_forms_are_one_class(tmp_path: Path) -> None:
    """macOS unpacks them in one form (NFD), Linux in the other (NFC)."""
    name = "café au lait"
    write_classes(tmp_path / "x" / "train", (unicodedata.normalize("NFC", name), "日本"))
    write_classes(tmp_path / "x" / "test", (unicodedata.normalize("NFD", name), "日本"), seed=1)
    source = from_folder(tmp_path / "x")
    assert source.class_names == (unicodedata.normalize("NFC", name), "日本")
    assert source.test().labels.bincount().tolist() == [5, 5]


# sizes and shapes


def test_pictures_of_one_small_size_stay_as_they_are(tmp_path: Path) -> None:
    write_classes(tmp_path / "x", size=(20, 128))
    source = from_folder(tmp_path / "x", fit="pad")
    assert source.sample_shape == (1, 20, 128)
    assert source.settings["stored_size"] == 0
    rows = {bytes(pixels.numpy()) for pixels in source.train().images}
    assert rows <= {noise(20, 128, seed=100 * row + i).tobytes() for row in range(2) for i in range(5)}


def test_pictures_of_many_sizes_become_squares(tmp_path: Path) -> None:
    write_classes(tmp_path / "x", ("a",), each=6, size=(30, 50))
    write_classes(tmp_path / "x", ("b",), each=7, size=(40, 35))
    source = from_folder(tmp_path / "x")
    assert source.sample_shape == (1, 35, 35)  # the median of six 30 and seven 35
    assert source.settings["stored_size"] == 35
    assert "Pictures are stored as 35×35 (crop)." in source.notes
    assert from_folder(tmp_path / "x", image_size=12).sample_shape == (1, 12, 12)
    write_classes(tmp_path / "big", ("a", "b"), size=(140, 130))
    assert from_folder(tmp_path / "big").sample_shape == (1, 128, 128)


@pytest.mark.parametrize(("asked", "shape", "stored"), [(None, 128, 128), (140, 140, 140), (8, 8, 8)])
def test_large_pictures_keep_their_size_only_if_asked(
    tmp_path: Path, asked: int | None, shape: int, stored: int
) -> None:
    write_classes(tmp_path / "x", each=2, size=(140, 140))
    source = from_folder(tmp_path / "x", image_size=asked)
    assert (source.sample_shape, source.settings["stored_size"]) == ((1, shape, shape), stored)
    if asked == 140:
        assert np.array_equal(source.train().images[0, 0], noise(140, 140, seed=int(source.test().labels[0] == 0)))


@pytest.mark.parametrize("fit", ["crop", "stretch", "pad"])
@pytest.mark.parametrize("wide", [True, False])
def test_ways_to_become_a_square(tmp_path: Path, fit: str, wide: bool) -> None:
    """A picture of three bands: the middle one is a square, black beside it is 0."""
    picture = np.zeros((30, 90), np.uint8)
    picture[:, :30], picture[:, 30:60], picture[:, 60:] = 50, 150, 250
    for name in ("a", "b"):
        (tmp_path / "x" / "train" / name).mkdir(parents=True)
        Image.fromarray(picture if wide else picture.T).save(tmp_path / "x" / "train" / name / "1.png")
    write_classes(tmp_path / "x" / "test", ("a", "b"))
    found = from_folder(tmp_path / "x", image_size=30, fit=fit).train().images[0, 0].double()  # type: ignore[arg-type]
    found = found if wide else found.T
    if fit == "crop":
        assert (found == 150).all()
    elif fit == "stretch":
        assert found[:, [1, 15, 28]].unique(dim=0).tolist() == [[50, 150, 250]]
    else:
        assert not found[:10].any()
        assert not found[20:].any()
        assert found[10:20, [1, 15, 28]].unique(dim=0).tolist() == [[50, 150, 250]]


def test_the_middle_of_a_picture_for_shapes_that_are_no_squares() -> None:
    """7·(29/7) is larger than 29 by a last bit: the box must still lie inside the picture."""
    tall = np.zeros((600, 29), np.uint8)
    tall[280:320] = 200
    (found,) = new_pictures(Image.fromarray(tall), Form((1, 8, 7), "crop"))
    assert found[0, 3:5].unique().tolist() == [200]


def test_large_photos_are_reduced_without_aliasing(tmp_path: Path) -> None:
    """Stripes of one pixel become their mean, by the JPEG decoder's own reduction too."""
    stripes = np.tile(np.array([[0, 200]], np.uint8), (1024, 512))
    for name in ("a", "b"):
        (tmp_path / "x" / "train" / name).mkdir(parents=True)
        Image.fromarray(stripes).save(tmp_path / "x" / "train" / name / "1.jpg", quality=95)
        Image.fromarray(stripes).save(tmp_path / "x" / "train" / name / "2.png")
    write_classes(tmp_path / "x" / "test", ("a", "b"))
    found = from_folder(tmp_path / "x", image_size=16).train().images.double()
    assert (found - 100).abs().max() < 5


# modes

RED, GREY = (255, 0, 0), 77


def one_picture(folder: Path, picture: object, name: str = "1.png", **options: object) -> torch.Tensor:
    """What is stored of a picture, (C, H, W), among others that do not matter."""
    save = options.pop("save", {})
    for place in ("train/a", "train/b", "test/a", "test/b"):
        (folder / place).mkdir(parents=True)
        picture.save(folder / place / name, **save)  # type: ignore[attr-defined]
    return from_folder(folder, **options).train().images[0]  # type: ignore[arg-type]


def test_16_bits_are_scaled_to_8(tmp_path: Path) -> None:
    values = np.array([[0, 128, 129, 257], [65535, 65406, 65407, 32768]], np.uint16)
    for name in ("1.png", "1.tif"):
        found = one_picture(tmp_path / name, Image.fromarray(values), name)
        assert found.tolist() == [np.rint(values / 257).astype(int).tolist()]


def test_palettes_are_resolved(tmp_path: Path) -> None:
    coloured = Image.new("RGB", (2, 2), RED)
    coloured.putpixel((1, 0), (0, 0, 255))
    found = one_picture(tmp_path / "c", coloured.convert("P", palette=Image.Palette.ADAPTIVE))
    assert found.tolist() == np.asarray(coloured).transpose(2, 0, 1).tolist()
    grey = Image.new("P", (2, 2), 1)
    grey.putpalette([0, 0, 0, GREY, GREY, GREY])
    assert one_picture(tmp_path / "g", grey).tolist() == [[[GREY, GREY], [GREY, GREY]]]


def test_transparent_pixels_are_white(tmp_path: Path) -> None:
    picture = Image.new("RGBA", (3, 1), (*RED, 255))
    picture.putpixel((1, 0), (0, 0, 0, 0))
    picture.putpixel((2, 0), (0, 0, 0, 51))  # one fifth black on white
    assert one_picture(tmp_path / "c", picture)[:, 0].T.tolist() == [[255, 0, 0], [255] * 3, [204] * 3]
    grey = Image.new("LA", (2, 1), (GREY, 255))
    grey.putpixel((1, 0), (0, 0))
    assert one_picture(tmp_path / "g", grey).tolist() == [[[GREY, 255]]]
    key = Image.new("L", (2, 1), GREY)
    key.putpixel((1, 0), 3)
    assert one_picture(tmp_path / "k", key, save={"transparency": 3}).tolist() == [[[GREY, 255]]]


def test_one_bit_cmyk_and_the_first_frame(tmp_path: Path) -> None:
    assert one_picture(tmp_path / "1", Image.new("1", (2, 1), 1)).tolist() == [[[255, 255]]]
    cmyk = one_picture(tmp_path / "cmyk", Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "1.tif")
    assert cmyk[:, 0, 0].tolist() == list(RED)
    frames = [Image.new("L", (2, 2), shade) for shade in (GREY, 200)]
    moving = tmp_path / "gif"
    found = one_picture(moving, frames[0], "1.gif", save={"save_all": True, "append_images": frames[1:]})
    assert (found == GREY).all()
    assert "Of pictures with several frames (4) the first one is used." in from_folder(moving).notes


def test_channels_can_be_asked_for(tmp_path: Path) -> None:
    write_classes(tmp_path / "grey")
    colour = from_folder(tmp_path / "grey", channels=3)
    assert colour.sample_shape == (3, 8, 8)
    plain = from_folder(tmp_path / "grey").train().images
    assert torch.equal(colour.train().images, plain.expand(-1, 3, -1, -1))
    red = one_picture(tmp_path / "red", Image.new("RGB", (2, 2), RED), channels=1)
    assert red.tolist() == [[[76, 76], [76, 76]]]  # 0.299 · 255


def test_one_coloured_picture_makes_a_set_coloured(tmp_path: Path) -> None:
    """Also where the first look at a few pictures missed it."""
    write_classes(tmp_path / "x", each=150, size=(4, 4))
    Image.new("RGB", (4, 4), RED).save(tmp_path / "x" / "cat" / "cat77.png")
    source = from_folder(tmp_path / "x")
    assert source.sample_shape == (3, 4, 4)
    found = torch.cat([source.train().images, source.test().images]).flatten(1)
    assert (found == torch.tensor(RED).repeat_interleave(16)).all(1).sum() == 1


def test_one_other_size_makes_a_set_square(tmp_path: Path) -> None:
    write_classes(tmp_path / "x", each=150, size=(4, 6))
    Image.new("L", (7, 7), GREY).save(tmp_path / "x" / "cat" / "cat77.png")
    source = from_folder(tmp_path / "x")
    assert source.sample_shape == (1, 4, 4)
    assert len(source.train().labels) + len(source.test().labels) == 300


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "jpg", "tif", "webp"])
def test_exif_rotation(tmp_path: Path, orientation: int, suffix: str) -> None:
    """The upright picture has four grey corners; it is stored in each of the eight ways that EXIF knows."""
    upright = np.zeros((16, 32), np.uint8)
    upright[:8, :16], upright[:8, 16:], upright[8:, :16], upright[8:, 16:] = 10, 90, 170, 250
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright),
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    lossless = {"lossless": True} if suffix == "webp" else {}
    found = one_picture(
        tmp_path / "x", Image.fromarray(np.ascontiguousarray(stored)), f"1.{suffix}", channels=1,
        save={"exif": exif.tobytes(), **lossless},
    )  # fmt: skip
    assert found.shape == (1, 16, 32)
    assert (found[0].double() - torch.tensor(upright).double()).abs().max() < 6


# what is skipped


def test_what_systems_leave_is_ignored_and_other_files_are_counted(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "x")
    plain = from_folder(root)
    for name in (".DS_Store", "cat/Thumbs.db", "__MACOSX/cat/._cat0.png", ".git/config", "cat/.hidden.png"):
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text("x")
    assert from_folder(root, strict=True).notes == plain.notes
    for name in ("README.md", "cat/labels.csv", "dog/movie.mp4"):
        (root / name).write_text("x")
    (root / "stray.png").write_bytes((root / "cat" / "cat0.png").read_bytes())
    source = from_folder(root)
    assert source.checksum == plain.checksum
    assert "Skipped files that are no pictures (3): cat/labels.csv, dog/movie.mp4, README.md." in source.notes
    assert "Skipped pictures that lie in no class folder (1): stray.png." in source.notes


def test_links(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "x" / "data")
    outside = tmp_path / "x" / "out.png"
    Image.new("L", (8, 8)).save(outside)
    (root / "cat" / "cat9.png").symlink_to(outside)
    (root / "cat" / "gone.png").symlink_to(root / "nothing.png")
    (root / "cat" / "circle").symlink_to(root)
    (root / "dog" / "dog9.png").symlink_to(root / "dog" / "dog0.png")  # inside: used
    source = from_folder(root)
    labels = torch.cat([source.train().labels, source.test().labels])
    assert labels.bincount().tolist() == [5, 6]
    assert "Skipped links that lead out of the folder (3): cat/cat9.png, cat/circle, cat/gone.png." in source.notes


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    write_classes(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert from_folder(tmp_path / "link").path == tmp_path / "real"


def test_broken_pictures_are_skipped_and_listed(tmp_path: Path) -> None:
    root = write_classes(tmp_path / "x" / "train", each=20)
    write_classes(tmp_path / "x" / "test", each=20, seed=1)
    for i in range(12):
        (root / "cat" / f"cat{i}.png").write_bytes(
            b"no picture" if i else (root / "cat" / "cat0.png").read_bytes()[:60]
        )
    source = from_folder(tmp_path / "x")
    assert source.train().labels.bincount().tolist() == [8, 20]
    assert source.train().labels[:8].tolist() == [0] * 8
    assert np.array_equal(source.train().images[0, 0], noise(8, 8, seed=12))
    (note,) = source.notes
    assert note.startswith("Skipped pictures that cannot be decoded (12, all listed in ")
    assert note.count("train/cat/") == 10
    listed = Path(note.split("listed in ")[1].split("): ")[0]).read_text().splitlines()
    assert [line.split("\t")[0] for line in listed] == [f"train/cat/cat{i}.png" for i in range(12)]


def test_a_class_without_a_test_picture_is_named(tmp_path: Path) -> None:
    write_classes(tmp_path / "x", each=10)
    write_classes(tmp_path / "x", ("rare",), each=1)
    source = from_folder(tmp_path / "x")
    assert source.train().labels.bincount().tolist() == [8, 8, 1]
    assert "The accuracy of classes without a test picture (1) cannot be measured: rare." in source.notes


def test_the_same_with_and_without_processes(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_classes(tmp_path / "x", each=150, size=(5, 9))
    (root / "cat" / "cat7.png").write_bytes(b"broken")
    alone = from_folder(root)
    monkeypatch.setattr("vmcr2.data._workers._FEW", 0)
    calls: list[tuple[str, int, int]] = []
    crowd = from_folder(root, cache=tmp_path / "other", progress=lambda *call: calls.append(call))
    assert crowd.checksum == alone.checksum
    assert torch.equal(crowd.train().images, alone.train().images)
    assert calls[-1] == ("packing", 300, 300)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


@pytest.mark.parametrize("options", [{}, {"image_size": 8, "fit": "pad"}, {"channels": 3, "split_seed": 4}])
def test_settings_open_the_same_again(tmp_path: Path, options: dict[str, object]) -> None:
    write_classes(tmp_path / "x", size=(9, 12))
    write_classes(tmp_path / "x", ("bird",), size=(12, 9), seed=1)
    source = from_folder(tmp_path / "x", **options)  # type: ignore[arg-type]
    settings = dict(source.settings)
    assert settings.pop("data") == "pictures"
    path, size = settings.pop("data_path"), settings.pop("stored_size") or None

    def never(*call: object) -> None:
        raise AssertionError(f"it was packed again: {call}")

    again = from_folder(path, image_size=size, progress=never, **settings)
    assert (again, again.settings, again.notes) == (source, source.settings, source.notes)
    assert again.checksum == source.checksum
    assert dataclasses.replace(again).title == "x"
