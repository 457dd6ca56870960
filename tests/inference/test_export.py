"""Exported files: they answer as the run does, hold what a reader must know, and leave nothing half done."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from digits_trainer import quick
from drawn_runs import CLASSES, allowed, answers_of, drawn_run, furthest, samples
from PIL import Image
from torch import Tensor

from vmcr2.data import Preparation, open_data
from vmcr2.inference import export
from vmcr2.runs import Run, UserError, fit
from vmcr2.runs._exporting import about, pipeline_of

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
PAGE = (Path(__file__).parents[2] / "docs/exporting.md").read_text()
SUFFIXES = (".onnx", ".pt2")


def read(path: Path) -> tuple[Callable[[Tensor], Any], dict[str, Any]]:
    """The model in a file, and what it says about itself: by the libraries alone."""
    if path.suffix == ".pt2":
        files = {"about.json": ""}
        return torch.export.load(path, extra_files=files).module(), json.loads(files["about.json"])
    session = onnxruntime.InferenceSession(path)
    said = {key: json.loads(text) for key, text in session.get_modelmeta().custom_metadata_map.items()}
    name = session.get_inputs()[0].name
    return lambda x: [torch.from_numpy(own) for own in session.run(None, {name: x.numpy()})], said


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(quick("vmcr2"), out=tmp_path_factory.mktemp("digits") / "run")


@pytest.fixture(scope="module", params=SUFFIXES)
def exported(request: pytest.FixtureRequest, digits: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("exported") / f"model{request.param}"
    written = digits.export(path)
    assert written.path == path
    assert written.batches == (1, 2, 7)
    assert written.difference < 1e-4
    return path


def test_real_pictures_in_batches_of_any_size(digits: Run, exported: Path) -> None:
    model, _ = read(exported)
    images = open_data("digits").test().images
    for batch in images[:1], images[:5], images:
        found = model(batch)
        assert furthest(found[1:], answers_of(digits, batch)[1:]) < 1e-4
    label, probabilities, *_ = found
    truth = open_data("digits").test().labels
    accuracy = (label == truth).double().mean().item()
    assert accuracy == pytest.approx(digits.summary["test_accuracy"], abs=0.01)
    assert probabilities.sum(1).sub(1).abs().max() < 1e-5


def test_it_is_one_file_that_says_what_it_is(digits: Run, exported: Path) -> None:
    assert [path.name for path in exported.parent.iterdir()] == [exported.name]
    _, said = read(exported)
    assert said["class_names"] == list("0123456789")
    assert (said["input_shape"], said["kind"], said["fit"]) == ([1, 8, 8], "pictures", "crop")
    assert said["outputs"] == ["label", "probabilities", "novelty", "features"]
    assert said["thresholds"] == {"0.01": digits.threshold(0.01), "0.05": digits.threshold(0.05)}
    assert said["calibrated"] is True
    assert said["calibration"] == {"origin": "set aside from training", "samples": 143}
    assert said["title"] == digits.config.title
    here = str(Path(__file__).parents[2]).encode()
    assert here not in exported.read_bytes(), "folders of the person who exports are nobody else's business"


@pytest.mark.parametrize(
    ("model", "shape", "settings", "suffix"),
    [
        ("mnist-cnn", (1, 28, 28), {"image_size": 32, "objective": "ce"}, ".onnx"),
        ("resnet18", (3, 40, 40), {"image_size": 32, "mean": (0.5,) * 3, "std": (0.2,) * 3}, ".onnx"),
        ("resnet18", (3, 40, 40), {"image_size": 32, "objective": "ce+mcr2"}, ".pt2"),
        ("preact18", (1, 16, 16), {"image_size": 16, "objective": "mcr2"}, ".onnx"),
        ("mlp", (7,), {"objective": "ce+vmcr2"}, ".onnx"),
    ],
)
def test_every_network(
    tmp_path: Path, model: str, shape: tuple[int, ...], settings: dict[str, Any], suffix: str
) -> None:
    run = drawn_run(tmp_path, shape, model=model, **settings)
    path = tmp_path / f"model{suffix}"
    run.export(path)
    assert os.listdir(tmp_path) == [path.name]
    loaded, said = read(path)
    assert (said["input_shape"], said["readout"]) == (list(shape), run.readout)
    for count in (1, 4, 9):
        x = samples(shape, count, seed=count)
        assert furthest(loaded(x)[1:], answers_of(run, x)[1:]) < max(1e-4, allowed(run))


def test_a_network_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "exported_net.py").write_text(
        "from torch import nn\n"
        "class Branch(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.flatten(1) if x.max() > 2 else x.flatten(1) + 1\n"
        "class Fixed(nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x.reshape(len(x), -1)\n"
        "def good():\n"
        "    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.GELU(), nn.AdaptiveAvgPool2d(2))\n"
    )
    run = drawn_run(tmp_path, (1, 8, 8), model="exported_net:good", image_size=8)
    run.export("good.onnx")
    x = samples((1, 8, 8), 5)
    assert furthest(read(Path("good.onnx"))[0](x)[1:], answers_of(run, x)[1:]) < max(1e-4, allowed(run))
    for name in ("Branch", "Fixed"):
        run = drawn_run(tmp_path, (1, 8, 8), model=f"exported_net:{name}", image_size=8, calibrated=False)
        with pytest.raises(UserError, match="the network cannot be exported for any number of samples") as error:
            run.export("bad.onnx")
        assert "\n" not in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"exported_net.py", "good.onnx"}


def test_added_classes_and_no_calibration(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, (1, 8, 8), objective="ce", calibrated=False, hidden=(16,))
    wider = run.add_class('a "new" <one>', samples((1, 8, 8), 6, seed=9))
    wider.export(tmp_path / "model.pt2")
    model, said = read(tmp_path / "model.pt2")
    assert said["class_names"][CLASSES:] == ['a "new" <one>']
    assert (said["calibrated"], said["thresholds"], said["readout"]) == (False, {}, "subspace")
    assert "calibration" not in said
    x = samples((1, 8, 8), 4)
    assert furthest(model(x), answers_of(wider, x)) < 1e-5
    residuals = wider.answers(x).residuals
    assert torch.allclose(model(x)[1], torch.softmax(-residuals, 1), atol=1e-5), "temperature 1"


def test_a_rate_that_needs_more_samples_is_absent(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, (1, 8, 8), hidden=(16,))  # calibrated on 60
    assert about(run)["thresholds"] == {"0.05": run.threshold(0.05)}


def test_a_run_in_half_precision_is_exported_in_float32(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, (1, 8, 8), precision="bfloat16", hidden=(16,), calibrated=False)
    x = samples((1, 8, 8), 20)
    exact = drawn_run(tmp_path, (1, 8, 8), precision="float32", hidden=(16,), calibrated=False)
    assert furthest(answers_of(run, x)[1:], answers_of(exact, x)[1:]) > 1e-4, "the run itself is not in float32"
    assert run.export(tmp_path / "model.pt2").difference < 1e-5
    assert furthest(read(tmp_path / "model.pt2")[0](x)[1:], answers_of(exact, x)[1:]) < 1e-5


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_differs_is_not_left(tmp_path: Path, suffix: str) -> None:
    run = drawn_run(tmp_path, (1, 8, 8), hidden=(16,), calibrated=False)
    pipeline, path = pipeline_of(run), tmp_path / f"model{suffix}"
    path.write_text("the old one")

    def other(x: Tensor) -> list[Tensor]:
        label, probabilities, novelty, features = answers_of(run, x)
        return [label, probabilities, novelty + 2e-4 * (len(x) == 2), features]

    with pytest.raises(UserError, match=r"not written, because the novelty of 2 samples would differ .* by 0\.0002"):
        export(pipeline, path, {}, original=other, trials=pipeline.trials((1, 2)), force=True)
    assert {own.name: own.read_text() for own in tmp_path.iterdir()} == {path.name: "the old one"}


def test_paths_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = drawn_run(tmp_path, (1, 8, 8), hidden=(16,), calibrated=False)
    (tmp_path / "old.pt2").write_text("old")
    (tmp_path / "folder.onnx").mkdir()
    for name, said in {
        "model.pth": r"model\.pth must end in \.onnx .* or \.pt2",
        "old.pt2": r"old\.pt2 already exists: choose another name, or --force",
        "folder.onnx": "is a folder: name a file",
        "no/model.onnx": "there is no folder .*no: create it first",
    }.items():
        with pytest.raises(UserError, match=said):
            run.export(tmp_path / name)
    assert (tmp_path / "old.pt2").read_text() == "old"
    run.export(tmp_path / "old.pt2", force=True)
    assert read(tmp_path / "old.pt2")[1]["class_names"] == list(run.class_names)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(UserError, match=r"\.onnx needs the library onnxscript: pip install 'vmcr2\[export\]'"):
        run.export(tmp_path / "model.onnx")


def test_weights_that_do_not_fit_into_one_onnx_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmcr2.inference._export._ONNX_BYTES", 1000)
    run = drawn_run(tmp_path, (1, 8, 8), hidden=(16,), calibrated=False)
    with pytest.raises(UserError, match=r"one ONNX file holds at most 2 GB: export \.pt2 instead"):
        run.export(tmp_path / "model.onnx")
    run.export(tmp_path / "model.pt2")


def test_torch_s_progress_is_not_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    drawn_run(tmp_path, (1, 8, 8), hidden=(16,), calibrated=False).export(tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")


# ---- the lines in the documents


def without_torch(code: str, folder: Path) -> dict[str, Any]:
    """What the lines make, in a process that has neither torch nor vmcr2."""
    code = (
        "import sys\nsys.modules['torch'] = sys.modules['vmcr2'] = None\n"
        + code
        + "\nresult = {'label': label.tolist()[0], 'probabilities': probabilities.tolist()[0]}"
        "\nprint('\\n' + json.dumps(result | {'novelty': novelty.tolist()[0]}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def photo(mode: str) -> Image.Image:
    """Not square, larger than the model's pictures, with shapes and noise."""
    generator = np.random.default_rng(5)
    y, x = np.mgrid[:170, :230]
    waves = (
        127 + 90 * np.sin(np.stack([x / 9, y / 14, (x + y) / 20, x / 60], 2)) + generator.normal(0, 9, (170, 230, 4))
    )
    picture = Image.fromarray(waves.clip(0, 255).astype(np.uint8), "RGBA" if mode != "CMYK" else "CMYK")
    return picture if mode == picture.mode else picture.convert(mode)


LINES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PADDED, PREPARED, _ = (own for own in re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL) if "run = vmcr2" not in own)


@pytest.fixture(scope="module")
def colour(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("lines")
    run = drawn_run(folder, (3, 20, 20), model="mlp", image_size=16)
    run.export(folder / "model.onnx")
    return run


def test_names_and_types_of_onnx(colour: Run) -> None:
    session = onnxruntime.InferenceSession(colour.folder / "model.onnx")
    (takes,) = session.get_inputs()
    assert (takes.name, takes.type, takes.shape) == ("pixels", "tensor(uint8)", ["batch", 3, 20, 20])
    outputs = {own.name: (own.type, own.shape[1:]) for own in session.get_outputs()}
    assert outputs == {
        "label": ("tensor(int64)", []),
        "probabilities": ("tensor(float)", [CLASSES]),
        "novelty": ("tensor(float)", []),
        "features": ("tensor(float)", [12]),
    }


def test_there_are_few_lines() -> None:
    (code,) = LINES
    lines = [line for line in code.splitlines() if line.strip() and not re.match("import|from", line)]
    assert len(lines) <= 15


@pytest.mark.parametrize(
    ("mode", "fit_", "name"),
    [("RGBA", "crop", "a.png"), ("P", "pad", "b.png"), ("L", "stretch", "c.png"), ("RGB", "crop", "d.jpg")],
)
def test_the_lines_of_the_documents(colour: Run, mode: str, fit_: str, name: str) -> None:
    (code,) = LINES
    if fit_ == "stretch":
        code = re.sub(r"^box = .*$", "box = None", code, flags=re.MULTILINE)
    elif fit_ == "pad":
        code = re.sub(r"^left = .*?(?=^pixels)", PADDED.replace("\\", r"\\"), code, flags=re.MULTILINE | re.DOTALL)
    path = colour.folder / name
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    photo(mode).save(path, exif=exif)
    found = without_torch(code.replace("picture.png", name), colour.folder)
    own = replace(colour, form=replace(colour.form, fit=fit_))
    answers = own.answers(path)
    assert found["label"] == int(answers.labels[0])
    tolerance = max(1e-4, allowed(colour))
    assert found["probabilities"] == pytest.approx(own.predict_proba(path)[0].tolist(), abs=tolerance)
    assert found["novelty"] == pytest.approx(float(answers.novelty[0]), abs=1e-4)


def test_the_lines_for_rows(tmp_path: Path) -> None:
    ages: list[int | None] = [20, 40, None, 60, 33, 21, 50, 70]
    table = {"age": ages, "colour": ["red", "blue"] * 4, "old": [False, True] * 4}
    preparation = Preparation.fit(table)
    run = drawn_run(tmp_path, (len(preparation.columns),), model="mlp", preparation=preparation)
    run.export(tmp_path / "model.onnx")
    start, _ = LINES[0].split("channels, height")
    for row in ({"age": 31, "colour": "red", "old": True}, {"age": None, "colour": "green", "old": False}):
        code = start + re.sub(r"^row = .*$", f"row = {row}", PREPARED, flags=re.MULTILINE)
        found = without_torch(code, tmp_path)
        answers = run.answers([row])
        assert found["label"] == int(answers.labels[0])
        expected = answers.probabilities[0].tolist()
        assert found["probabilities"] == pytest.approx(expected, abs=max(1e-4, allowed(run)))


def test_the_lines_for_torch(colour: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(colour.folder)
    colour.export("model.pt2")
    (code,) = (own for own in re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL) if "torch.export.load" in own)
    scope: dict[str, Any] = {}
    exec(code, scope)
    expected = answers_of(colour, torch.zeros(4, 3, 20, 20, dtype=torch.uint8))
    assert furthest([scope[name] for name in ("label", "probabilities", "novelty", "features")], expected) < 1e-4
    assert scope["about"] == about(colour)
