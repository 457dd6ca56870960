"""New pictures in every form that people have them become what training has seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vmcr2.data import DataError, Form, from_folder, new_pictures, picture_blocks, picture_files

GREY, COLOUR = Form((1, 8, 8), "crop"), Form((3, 6, 6), "crop")


@pytest.fixture
def gradient() -> Image.Image:
    rows = np.add.outer(np.arange(10) * 12, np.arange(14) * 9).astype(np.uint8)
    return Image.fromarray(np.stack([rows, 255 - rows, rows // 2], axis=2))


@pytest.mark.parametrize("fit", ["crop", "stretch", "pad"])
def test_a_path_gives_the_pixels_of_training(fit: Any, tmp_path: Path, gradient: Image.Image) -> None:
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            gradient.rotate(10 * number).save(tmp_path / "photos" / name / f"{number}.png")
    source = from_folder(tmp_path / "photos", image_size=6, fit=fit, cache=tmp_path / "cache")
    form = Form(source.image_shape, fit)
    files = picture_files([tmp_path / "photos"]).paths
    given = {row.numpy().tobytes() for row in new_pictures([Path(file) for file in files], form)}
    trained = {row.numpy().tobytes() for split in (source.train(), source.test()) for row in split.images}
    assert given == trained


def test_all_forms_of_one_picture_are_the_same(tmp_path: Path, gradient: Image.Image) -> None:
    small = gradient.crop((0, 0, 6, 6))
    small.save(tmp_path / "one.png")
    expected = new_pictures(tmp_path / "one.png", COLOUR)
    assert expected.shape == (1, 3, 6, 6)
    last = np.asarray(small)
    first = torch.from_numpy(last.transpose(2, 0, 1).copy())
    forms: list[Any] = [str(tmp_path / "one.png"), small, last, last[None], first, first[None], first.numpy()]
    for form in forms:
        assert torch.equal(new_pictures(form, COLOUR), expected)
    unit = first.float() / 255  # as torchvision's ToTensor makes them
    for form in (unit, unit.half().float(), unit.double().numpy(), {"image": unit, "label": 3}, {"img": small}):
        assert torch.equal(new_pictures(form, COLOUR), expected)
    both = new_pictures([tmp_path / "one.png", small, last], COLOUR)
    assert torch.equal(both, expected.expand(3, -1, -1, -1))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "LA", "I;16"])
def test_any_mode_becomes_the_run_s(mode: str, gradient: Image.Image) -> None:
    picture = gradient.convert("L").convert("I;16") if mode == "I;16" else gradient.convert(mode)
    for form in (GREY, COLOUR):
        assert new_pictures(picture, form).shape == (1, *form.shape)
    assert picture.size == gradient.size  # it was not changed


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
def test_shapes_that_are_not_square(fit: str) -> None:
    """A white picture stays white, but for the bars of pad."""
    form = Form((1, 4, 8), fit)
    tall = new_pictures(Image.new("L", (20, 40), 255), form)
    assert tall.shape == (1, 1, 4, 8)
    assert (tall == 255).all() == (fit != "pad")
    assert tall[0, 0, :, 3:5].min() == 255
    same_aspect = new_pictures(Image.new("L", (80, 40), 255), form)
    assert (same_aspect == 255).all()


def test_a_crop_keeps_the_middle_in_the_shape_s_proportions() -> None:
    stripes = np.zeros((12, 12), dtype=np.uint8)
    stripes[3:9] = 255  # what a crop to 1 : 2 keeps
    assert (new_pictures(Image.fromarray(stripes), Form((1, 6, 12), "crop")) == 255).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.randn(2, 1, 8, 8), "numbers outside 0..1: give floats between 0 and 1, not normalised, or uint8"),
        (torch.full((1, 8, 8), torch.nan), "numbers outside 0..1"),
        (np.zeros((8, 8), dtype=np.int64), "pixels of type int64: give uint8, or floats between 0 and 1"),
        (np.zeros((9, 9), dtype=np.uint8), "must be 1×8×8 as in training, got the shape 9×9: give paths"),
        (np.zeros((5, 8, 8, 3), dtype=np.uint8), "must be 1×8×8 as in training, got the shape 5×8×8×3"),
        (np.zeros((5, 2, 8, 8), dtype=np.uint8), "they need 1 or 3 channels"),
        (np.zeros(8, dtype=np.uint8), "must be 1×8×8 as in training, got the shape 8"),
        ([], "the list is empty"),
        ([[0]], "pictures can be paths, .*; got int"),
        ({"a": 1}, "pictures can be paths, .*; got a dict with a, and"),
        ("https://example.org/a.png", "it is an address, .*: download it first"),
        ("nowhere.png", r"nowhere\.png \(it does not exist: correct the path\)"),
    ],
)
def test_what_is_no_picture_is_said(given: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        new_pictures(given, GREY)


def test_files_that_are_no_pictures_are_named(tmp_path: Path, gradient: Image.Image) -> None:
    gradient.save(tmp_path / "2.png")
    gradient.save(tmp_path / "10.png")
    (tmp_path / "9.png").write_text("only text")
    files = picture_files([tmp_path])
    assert [Path(file).name for file in files.paths] == ["2.png", "9.png", "10.png"]
    with pytest.raises(DataError, match=r"9\.png \(it is no picture of a known format\); leave it out"):
        new_pictures(tmp_path, COLOUR)
    blocks = list(picture_blocks(files, COLOUR, block=1, seconds=60))
    assert [[Path(name).name for name in block.names] for block in blocks] == [["2.png"], ["10.png"]]
    assert [len(block.inputs) for block in blocks] == [1, 1]
    assert len(list(picture_blocks(files, COLOUR, seconds=0))) == 3  # a person sees every step of slow ones
    assert [Path(name).name for block in blocks for name, _ in block.unreadable] == ["9.png"]
    (tmp_path / "empty").mkdir()
    found = picture_files([tmp_path / "empty", tmp_path / "2.png", tmp_path / "none.png", "http:/a.png"])
    assert [Path(path).name for path in found.paths] == ["2.png"]
    reasons = [why.split(":")[0] for _, why in found.unreadable]
    assert reasons == [
        "the folder has no pictures",
        "it does not exist",
        "it is an address, and vmcr2 reads only local files",
    ]


def test_links_are_named(tmp_path: Path, gradient: Image.Image) -> None:
    (tmp_path / "in").mkdir()
    gradient.save(tmp_path / "elsewhere.png")
    gradient.save(tmp_path / "in" / "own.png")
    (tmp_path / "in" / "link.png").symlink_to(tmp_path / "elsewhere.png")
    files = picture_files([tmp_path / "in"])
    assert [Path(path).name for path in files.paths] == ["own.png"]
    ((name, why),) = files.unreadable
    assert Path(name).name == "link.png"
    assert "a link that leads out of the folder" in why
    assert len(picture_files([tmp_path / "in" / "link.png"]).paths) == 1  # by itself it is wanted


def test_a_link_that_is_no_picture_is_nobody_s_problem(tmp_path: Path, gradient: Image.Image) -> None:
    gradient.save(tmp_path / "a.png")
    (tmp_path / "debug.log").symlink_to("nowhere")
    assert picture_files([tmp_path]) == ([str(tmp_path / "a.png")], [])
    (tmp_path / "b.png").symlink_to("nowhere")
    assert [name for name, _ in picture_files([tmp_path]).unreadable] == [str(tmp_path / "b.png")]


def test_a_broken_picture_is_said_to_be_broken(tmp_path: Path, gradient: Image.Image) -> None:
    gradient.convert("L").save(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:60])
    with pytest.raises(DataError, match=r"a\.jpg \(it is broken: "):
        new_pictures(tmp_path / "a.jpg", GREY)


def test_many_pictures_come_in_order_from_all_cores(tmp_path: Path) -> None:
    for shade in range(250):
        Image.new("L", (8, 8), shade).save(tmp_path / f"{shade}.png")
    files = picture_files([tmp_path])
    blocks = list(picture_blocks(files, GREY, block=100, seconds=600))
    assert [len(block.names) for block in blocks] == [100, 100, 50]
    shades = torch.cat([block.inputs for block in blocks])[:, 0, 0, 0].tolist()
    assert shades == list(range(250))
