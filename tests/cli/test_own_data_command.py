"""`vmcr2 train DIR`, `vmcr2 train FILE` and `vmcr2 data check`, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import in_process
from picture_folders import write_classes, write_split

from vmcr2.data import open_data
from vmcr2.runs import RunFolder

FEW = ("--epochs", "3", "--set", "hidden=32", "--set", "dim=30")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A few digits in one tree, to be split by the command, with a broken picture."""
    whole = open_data("digits").test()
    write_split(tmp_path / "my photos", whole, tuple(f"digit {j}" for j in range(10)))
    (tmp_path / "my photos" / "digit 3" / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0 and then nothing")
    return tmp_path / "my photos"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    rows = [f"{j + random.normal() / 4:.4f},{'north' if j else 'south'},{'ab'[j]}" for j in (0, 1) for _ in range(60)]
    (tmp_path / "flowers.csv").write_text("length,side,kind\n" + "\n".join(rows) + "\n")
    return tmp_path / "flowers.csv"


def test_a_folder_is_one_argument(photos: Path) -> None:
    said = in_process("train", "my photos", *FEW, "--out", "run")
    assert said.code == 0, said.err
    assert "my photos: 289 training pictures of 1×8×8, 10 classes of 28 to 30" in said.out
    assert "bad.jpg" in said.out
    assert "settings by the rule: objective ce+mcr2, model mlp, hidden 32, dim 30" in said.out
    assert said.out.index("settings by the rule") < said.out.index("epoch 1/3")
    assert (photos.parent / "run" / "report.html").exists()
    assert "digit 7" in (photos.parent / "run" / "report.html").read_text()
    assert "bad.jpg" in (photos.parent / "run" / "report.html").read_text()
    assert "on my photos: test accuracy" in (photos.parent / "run" / "report.html").read_text()
    for again in (("evaluate", "run"), ("report", "run"), ("train", "--resume", "--out", "run")):
        assert in_process(*again).code == 0
    other = in_process("train", "./elsewhere", "--resume", "--out", "run")
    assert other.code == 2
    assert "is a run of" in other.err


def test_the_run_s_folder_is_called_like_the_data(photos: Path) -> None:
    said = in_process("train", str(photos), *FEW, "--json")
    assert said.code == 0, said.err
    assert Path(json.loads(said.out)["folder"]).name.startswith("my_photos-ce+mcr2-seed0-")


def test_strict_makes_a_broken_picture_an_error(photos: Path) -> None:
    said = in_process("train", "my photos", *FEW, "--strict", "--out", "run")
    assert said.code == 2
    assert "bad.jpg" in said.err
    assert "\n" not in said.err.strip()
    assert not Path("run").exists()


def test_data_without_a_recipe_is_one_s_own(photos: Path) -> None:
    said = in_process("train", "--data", "my photos", *FEW, "--out", "run")
    assert said.code == 0, said.err
    assert RunFolder(Path("run")).read_config().data.path == str(photos)


def test_options_of_pictures(photos: Path) -> None:
    said = in_process("train", "my photos", "--image-size", "6", "--channels", "3", *FEW, "--out", "run")
    assert said.code == 0, said.err
    data = RunFolder(Path("run")).read_config().data
    assert (data.stored_size, data.image_size, data.channels) == (6, 6, 3)


def test_a_table_is_one_argument(table: Path) -> None:
    said = in_process("train", "flowers.csv", "--label", "kind", *FEW, "--out", "run")
    assert said.code == 0, said.err
    assert "flowers: 96 training rows of 3 numbers, 2 classes of 48" in said.out
    assert in_process("evaluate", "run").code == 0
    shown = in_process("recipes", "flowers.csv", "--label", "kind")
    assert "input_noise" in shown.out
    assert "image_size" not in shown.out


def test_a_test_table_of_one_s_own(table: Path) -> None:
    lines = table.read_text().splitlines()
    Path("held.csv").write_text("\n".join([lines[0], *lines[1:10], *lines[-10:]]))
    said = in_process("train", "flowers.csv", "--label", "kind", "--test", "held.csv", *FEW, "--out", "run")
    assert said.code == 0, said.err
    assert json.loads(Path("run/summary.json").read_text())["test_images"] == 19


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("train", "photos"), ("there is no recipe 'photos'", "no folder or file")),
        (("train", "./photos"), ("there is no folder or file ./photos",)),
        (("train", "https://example.org/p.zip"), ("is a web address", "download")),
        (("train", "my photos", "--data", "x"), ("both say where the data are",)),
        (("train", "my photos", "--label", "x"), ("label acts with data table only",)),
        (("train", "my photos", "--channels", "2"), ("channels",)),
        (("train", "flowers.csv"), ("--label COLUMN", "length, side, kind")),
        (("train", "flowers.csv", "--label", "colour"), ("colour", "length, side, kind")),
        (("train", "flowers.csv", "--label", "kind", "--image-size", "16"), ("image_size does nothing",)),
        (("train", "digits", "--strict"), ("--strict is for a folder",)),
        (("train", "my photos", "--model", "nowhere:net"), ("nowhere",)),
        (("train", "my photos", "--weights", "no.pt", "--model", "resnet18"), ("no.pt",)),
        (("train", "my photos", "--set", "data=digits"), ("data is set", "leave --set data out")),
        (("train", "flowers.csv", "--label", "kind", "--image-size", "8"), ("image_size does nothing",)),
        (("train", "flowers.csv", "--label", "kind", "--strict"), ("--strict is for a folder",)),
        (("train", "flowers.csv", "--label", "kind", "--holdout", "95"), ("holdout 95 leaves 1 of 96",)),
        (("train", "my photos", "--validation"), ("no validation samples beside test samples",)),
        (("recipes", "digits", "--label", "x"), ("label acts with data table only",)),
        (("data", "check", "nothing"), ("there is no folder or file nothing",)),
        (("data", "check", "my photos", "--label", "x"), ("--label is for a table",)),
    ],
)
def test_a_mistake_is_one_sentence(photos: Path, table: Path, args: tuple[str, ...], words: tuple[str, ...]) -> None:
    before = {path for path in Path().iterdir() if path.name != "runs"}
    said = in_process(*args)
    assert said.code == 2
    assert said.err.startswith("vmcr2: ")
    assert said.err.count("\n") == 1
    assert all(word in said.err for word in words), said.err
    assert before == {path for path in Path().iterdir() if path.name != "runs"}


def test_check_looks_at_a_folder(photos: Path) -> None:
    said = in_process("data", "check", "my photos")
    assert said.code == 1
    assert "bad.jpg" in said.out
    (photos / "digit 3" / "bad.jpg").unlink()
    said = in_process("data", "check", "my photos", "--json")
    assert json.loads(said.out)["title"] == str(photos)
    assert said.code == 0


def test_check_looks_at_a_table(table: Path) -> None:
    said = in_process("data", "check", "flowers.csv", "--label", "kind", "--json")
    found = json.loads(said.out)
    assert any("2" in value for what, value in found["rows"] if "class" in what)


def test_a_stopped_run_goes_on_where_its_folder_has_moved(photos: Path) -> None:
    assert in_process("train", "my photos", *FEW, "--out", "run").code == 0
    whole = Path("run/summary.json").read_text()
    Path("run/summary.json").unlink()
    photos.rename("elsewhere")
    assert "is gone: say with --data" in in_process("train", "--resume", "--out", "run").err
    said = in_process("train", "--resume", "--out", "run", "--data", "elsewhere")
    assert said.code == 0, said.err
    figures = [json.loads(text) for text in (whole, Path("run/summary.json").read_text())]
    assert figures[0]["train_delta_r"] == figures[1]["train_delta_r"]


def test_a_sweep_over_a_table(table: Path) -> None:
    said = in_process("sweep", "flowers.csv", "--label", "kind", "--grid", "lr=0.1", *FEW, "--out", "sweep")
    assert said.code == 0, said.err


def test_a_sweep_over_a_folder(tmp_path: Path) -> None:
    write_classes(tmp_path / "shapes", each=20)
    said = in_process("sweep", "./shapes", "--grid", "lr=0.1,0.2", *FEW, "--out", "sweep")
    assert said.code == 0, said.err
    assert "2 of 2 runs have a line" in said.out
