"""Runs on people's own data: a folder, a table, arrays; and their own networks."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from picture_folders import write_split
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_wine
from torch import nn

import vmcr2
from vmcr2.data import DataError, from_arrays, from_dataset, from_folder, from_table, open_data
from vmcr2.runs import RunFolder, UserError, evaluate_run, find_recipe, fit, is_own_data, load_run, read_record, recipe
from vmcr2.sklearn import RateReductionClassifier

NAMES = tuple("0123456789")
FEW: dict[str, Any] = {"epochs": 4, "hidden": (32,), "dim": 30, "device": "cpu"}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scikit-learn's digits as PNGs, in a folder that is called like a recipe."""
    folder, source = tmp_path_factory.mktemp("own") / "digits", open_data("digits")
    write_split(folder / "train", source.train(), NAMES)
    write_split(folder / "test", source.test(), NAMES)
    return folder


@pytest.fixture(scope="module")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a text column, gaps, and a column of classes."""
    x, y = load_wine(return_X_y=True)
    path = tmp_path_factory.mktemp("own") / "wine.csv"
    with path.open("w", newline="") as file:
        write = csv.writer(file)
        write.writerow([*(f"n{i}" for i in range(13)), "colour", "cultivar"])
        for i, (row, label) in enumerate(zip(x, y, strict=True)):
            numbers = ["" if (i + j) % 50 == 0 else f"{value:.6g}" for j, value in enumerate(row)]
            write.writerow([*numbers, ("pale", "deep")[int(row[9] > 5)], f"barrel {label}"])
    return path


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


# ---- pictures


def test_digits_in_a_folder_are_the_built_in_digits(digits: Path, tmp_path: Path) -> None:
    """The same tensors, and with the same settings the same weights, bit for bit."""
    own, built_in = from_folder(digits), open_data("digits")
    for one, two in ((own.train(), built_in.train()), (own.test(), built_in.test())):
        assert torch.equal(one.inputs, two.inputs)
        assert torch.equal(one.labels, two.labels)
    assert own.checksum == built_in.checksum
    by_folder = fit(recipe("auto", data=digits, **FEW), out=tmp_path / "folder")
    by_name = fit(recipe("auto", data=built_in, **FEW), out=tmp_path / "name")
    assert same(weights_of(by_folder.folder), weights_of(by_name.folder))
    timeless = [{k: v for k, v in run.summary.items() if k != "seconds"} for run in (by_folder, by_name)]
    assert timeless[0] == timeless[1]


def test_a_run_on_a_folder_from_start_to_report(digits: Path, tmp_path: Path) -> None:
    run = fit(recipe("auto", data=str(digits), **FEW), out=tmp_path / "run")
    assert run.config.data.name == "pictures"
    assert run.config.data.path == str(digits.resolve())
    assert run.class_names == NAMES
    again = evaluate_run(run.folder, device="cpu")
    assert again["test_accuracy"] == pytest.approx(run.summary["test_accuracy"], abs=0.006)
    loaded = load_run(run.folder, device="cpu")
    predicted = loaded.predict(open_data("digits").test().images, labels=True)
    right = (predicted == open_data("digits").test().labels).double().mean().item()
    assert right == pytest.approx(run.summary["readout_accuracy"], abs=0.006)
    moved = tmp_path / "moved"
    shutil.copytree(digits, moved)
    assert evaluate_run(run.folder, data_path=str(moved), device="cpu")["test_accuracy"] == again["test_accuracy"]


def test_a_stopped_run_goes_on_over_the_folder(digits: Path, tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    class Listener:
        def started(self, *args: Any) -> None: ...

        def note(self, text: str) -> None: ...

        def epoch(self, record: dict[str, Any]) -> None:
            if record["epoch"] == 3:
                raise StoppedError

    config = recipe("auto", data=digits, checkpoint_seconds=0, **FEW)
    whole = fit(config, out=tmp_path / "whole")
    with pytest.raises(StoppedError):
        fit(config, out=tmp_path / "run", callbacks=[Listener()])
    gone_on = fit(config, out=tmp_path / "run", resume=True)
    assert same(weights_of(whole.folder), weights_of(gone_on.folder))


def test_other_pictures_are_another_training_set(digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits, tmp_path / "own")
    run = fit(recipe("auto", data=tmp_path / "own", **FEW), out=tmp_path / "run")
    next(iter((tmp_path / "own" / "train" / "3").iterdir())).unlink()
    with pytest.warns(UserWarning, match="started with other training data"):
        evaluate_run(run.folder, device="cpu")
    shutil.rmtree(tmp_path / "own")
    with pytest.raises(DataError, match="is gone: say with --data where the data are now"):
        evaluate_run(run.folder, device="cpu")


def mixed(folder: Path) -> Path:
    """Digits of sizes from 8 to 20, in colour and grey, as PNG and BMP, with one broken file."""
    source, random = open_data("digits"), np.random.default_rng(0)
    for part, split in (("train", source.train()), ("test", source.test())):
        for row, (pixels, label) in enumerate(zip(split.images.numpy(), split.labels.tolist(), strict=True)):
            place = folder / part / f"digit {label}"
            place.mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(pixels[0])
            side = 8 * int(random.integers(1, 3)) if row % 3 else 20
            picture = picture.resize((side, side), Image.Resampling.NEAREST if side % 8 == 0 else Image.Resampling.BOX)
            picture.convert("RGB" if row % 2 else "L").save(place / f"{row:05}.{'png' if row % 5 else 'bmp'}")
    (folder / "train" / "digit 0" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing")
    return folder


def test_mixed_sizes_and_a_broken_file_learn_as_well(tmp_path: Path) -> None:
    """Within 0.01 of the built-in digits, on average over five seeds."""
    folder = mixed(tmp_path / "photos")
    own = from_folder(folder, image_size=8, channels=1)
    assert any("broken.png" in note for note in own.notes)
    assert own.sample_shape == (1, 8, 8)
    settings = {"device": "cpu", "epochs": 40}
    means = []
    for source in (own, open_data("digits")):
        found = [
            fit(
                recipe("auto", data=source, seed=seed, **settings), source=source, out=tmp_path / f"{source.name}{seed}"
            )
            for seed in range(5)
        ]
        means.append(np.mean([run.summary["readout_accuracy"] for run in found]))
    assert means[0] > means[1] - 0.01


def test_validation_pictures_are_measured_and_the_test_is_not_read(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "own"
    shutil.copytree(digits, folder)
    shutil.copytree(folder / "test", folder / "val")
    shutil.rmtree(folder / "test" / "9")
    source = from_folder(folder)
    assert source.has_val
    read: list[str] = []
    load = type(source._reader).load
    monkeypatch.setattr(type(source._reader), "load", lambda self, part: (read.append(part), load(self, part))[1])
    run = fit(recipe("auto", data=source, validation=True, **FEW), source=source, out=tmp_path / "run")
    assert set(read) == {"train", "val"}
    assert run.summary["holdout_images"] == 360
    assert "test_accuracy" not in run.summary
    with pytest.raises(UserError, match="digits has no validation samples"):
        fit(recipe("auto", data=digits, validation=True, **FEW), out=tmp_path / "other")


# ---- names


@pytest.mark.parametrize(
    ("name", "own"), [("digits", False), ("./digits", True), ("digits-vmcr2", False), ("~/x", True), ("nothing", False)]
)
def test_a_recipe_s_name_comes_first(digits: Path, name: str, own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(digits.parent)
    assert is_own_data(name) is own


def test_a_folder_is_found_like_a_recipe(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(digits.parent)
    assert find_recipe("./digits").config == find_recipe(str(digits)).config
    assert find_recipe("./digits").config.data.name == "pictures"
    assert find_recipe("digits").config.data.name == "digits"


def test_an_unknown_name_says_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"no recipe 'photos'.* and no folder or file of that name"):
        find_recipe("photos")
    with pytest.raises(DataError, match="there is no folder or file photos/x"):
        find_recipe("photos/x")
    with pytest.raises(DataError, match="is a web address: download"):
        find_recipe("https://example.org/photos")


def test_two_folders_are_two_identities(digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits, tmp_path / "other")
    one, two = recipe("auto", data=digits), recipe("auto", data=tmp_path / "other")
    assert one.deciding() != two.deciding()
    assert one.deciding() == recipe("auto", data=str(digits)).deciding()


# ---- tables


def test_a_table_is_as_good_as_by_the_estimator(wine: Path, tmp_path: Path) -> None:
    source = from_table(wine, "cultivar")
    run = fit(recipe("auto", data=wine, label="cultivar", device="cpu"), out=tmp_path / "run")
    train, test = source.train(), source.test()
    estimator = RateReductionClassifier(random_state=0).fit(train.inputs.numpy(), train.labels.numpy())
    assert run.summary["readout_accuracy"] > estimator.score(test.inputs.numpy(), test.labels.numpy()) - 0.06
    assert run.config.data.label == "cultivar"
    assert run.class_names == ("barrel 0", "barrel 1", "barrel 2")


def test_the_run_keeps_how_rows_become_numbers(wine: Path, tmp_path: Path) -> None:
    run = fit(recipe("auto", data=wine, label="cultivar", **FEW), out=tmp_path / "run")
    with wine.open() as file:
        rows = [{k: v for k, v in row.items() if k != "cultivar"} for row in csv.DictReader(file)]
        file.seek(0)
        truth = [row["cultivar"] for row in csv.DictReader(file)]
    loaded = load_run(run.folder, device="cpu")
    for row in rows:
        row.update({name: float(value) if value else None for name, value in row.items() if name != "colour"})
    predicted = loaded.predict(rows)
    right = np.mean([a == b for a, b in zip(predicted, truth, strict=True)])
    assert right == pytest.approx(
        (142 * run.summary["train_accuracy"] + 36 * run.summary["test_accuracy"]) / 178, abs=0.12
    )
    assert read_record(RunFolder(run.folder).preparation) == from_table(wine, "cultivar").preparation
    with pytest.raises(DataError, match="colour"):
        loaded.predict([{k: v for k, v in row.items() if k != "colour"} for row in rows])


def test_a_table_that_is_stopped_goes_on(wine: Path, tmp_path: Path) -> None:
    config = recipe("auto", data=wine, label="cultivar", **FEW)
    run = fit(config, out=tmp_path / "run")
    assert fit(config, out=tmp_path / "run", resume=True).summary == run.summary
    assert "test_accuracy" in evaluate_run(run.folder, device="cpu")


def test_settings_of_pictures_do_nothing_on_a_table(wine: Path) -> None:
    for name, value in {"image_size": 16, "augmentation": "flip", "fit": "pad", "channels": 1}.items():
        with pytest.raises(UserError, match=f"^{name} (does nothing with data table|acts with data pictures only)"):
            recipe("auto", data=wine, label="cultivar", **{name: value})
    with pytest.raises(UserError, match=r"^input_noise acts with data table or given-rows only"):
        recipe("digits", input_noise=0.5)
    with pytest.raises(UserError, match="only pictures can be streamed"):
        fit(recipe("auto", data=wine, label="cultivar", stream="yes", **FEW))


# ---- made in Python


def test_arrays_and_datasets_are_trained_on(tmp_path: Path) -> None:
    built_in = open_data("digits")
    train, test = built_in.train(), built_in.test()
    pixels = [split.images[:, 0].numpy() for split in (train, test)]
    arrays = from_arrays(pixels[0], train.labels.numpy(), test=(pixels[1], test.labels.numpy()))
    pairs = [
        [(Image.fromarray(x), int(y)) for x, y in zip(images, split.labels, strict=True)]
        for images, split in zip(pixels, (train, test), strict=True)
    ]
    dataset = from_dataset(pairs[0], pairs[1])
    runs = {}
    for name, source in {"arrays": arrays, "dataset": dataset, "built-in": built_in}.items():
        runs[name] = fit(recipe("auto", data=source, **FEW), source=source, out=tmp_path / name)
    assert same(weights_of(runs["arrays"].folder), weights_of(runs["built-in"].folder))
    assert same(weights_of(runs["dataset"].folder), weights_of(runs["built-in"].folder))
    with pytest.raises(DataError, match=r"made in Python.*source="):
        evaluate_run(runs["arrays"].folder, device="cpu")
    again = evaluate_run(runs["arrays"].folder, device="cpu", source=arrays)
    assert again["test_accuracy"] == runs["arrays"].summary["test_accuracy"]


# ---- networks


class Small(nn.Module):
    """A network of one's own: it knows nothing of vmcr2."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def small_network() -> nn.Module:
    return Small()


OWN_NETWORK = f"{__name__}:small_network"
WITH_OWN: dict[str, Any] = {"model": OWN_NETWORK, "epochs": 6, "dim": 30, "device": "cpu"}


def test_a_network_of_one_s_own_is_trained_and_loaded(digits: Path, tmp_path: Path) -> None:
    run = fit(recipe("auto", data=digits, **WITH_OWN), out=tmp_path / "run")
    assert run.summary["readout_accuracy"] > 0.8
    images = open_data("digits").test().images
    assert load_run(run.folder, device="cpu").predict(images) == run.predict(images)
    assert run.config.data.augmentation != "none"  # the rule takes it for a network of pictures


def test_weights_from_a_file_and_a_frozen_backbone(digits: Path, tmp_path: Path) -> None:
    first = small_network()
    torch.save(first.state_dict(), tmp_path / "first.pt")
    given = WITH_OWN | {"weights": str(tmp_path / "first.pt"), "backbone_rate": 0.0}
    run = fit(recipe("auto", data=digits, **given), out=tmp_path / "run")
    kept = weights_of(run.folder)
    for name, value in first.state_dict().items():
        assert torch.equal(kept[f"net.{name}"] if f"net.{name}" in kept else kept[_under(kept, name)], value), name
    (tmp_path / "first.pt").unlink()  # a finished run does not need it
    assert load_run(run.folder, device="cpu").class_names == NAMES
    assert len(json.loads((run.folder / "manifest.json").read_text())["weights_sha256"]) == 64


def _under(names: dict[str, torch.Tensor], name: str) -> str:
    return next(found for found in names if found.endswith(f".{name}"))


def test_a_run_starts_from_another(digits: Path, tmp_path: Path) -> None:
    first = fit(recipe("auto", data=digits, **FEW), out=tmp_path / "first")
    settings = FEW | {"epochs": 1, "lr": 1e-9}
    second = fit(recipe("auto", data=digits, start_from=str(first.folder), **settings), out=tmp_path / "second")
    one, two = weights_of(first.folder), weights_of(second.folder)
    assert all(torch.allclose(one[name], two[name], atol=1e-5) for name in one if name.endswith("weight"))
    with pytest.warns(UserWarning, match="start as they were drawn"):
        fit(
            recipe("auto", data=digits, start_from=str(first.folder), **(settings | {"dim": 20})),
            out=tmp_path / "third",
        )
    with pytest.raises(UserError, match="is not a run folder"):
        fit(recipe("auto", data=digits, start_from=str(tmp_path), **settings), out=tmp_path / "fourth")


def test_the_public_names() -> None:
    assert {"from_folder", "from_table", "from_arrays", "from_dataset", "Source"} <= set(vmcr2.data.__all__)
