"""The README's story, command by command: from a folder of pictures to a run, a file for others, and a server."""

from __future__ import annotations

import base64
import csv
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_browser import Browser
from PIL import Image

ROOT = Path(__file__).parents[1]
KNOWN = "photos-new/001-six.png"
DROP = """
const bytes = Uint8Array.from(atob(arguments[0]), (letter) => letter.charCodeAt(0));
const transfer = new DataTransfer();
transfer.items.add(new File([bytes], "one.png", { type: "image/png" }));
document.getElementById("drop").dispatchEvent(
  new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: transfer }));
"""


def commands() -> list[list[str]]:
    """Of the block that starts with `vmcr2 data example photos`, without comments."""
    (block,) = re.findall(r"```sh\n(vmcr2 data example photos.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder: the story makes all that it names."""
    return tmp_path_factory.mktemp("story")


def environment(place: Path) -> dict[str, str]:
    own = {"VMCR2_CACHE": str(place / "cache"), "PYTHONPATH": str(ROOT), "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **own, "CUDA_VISIBLE_DEVICES": ""}


def run(place: Path, words: list[str]) -> str:
    command = [sys.executable, "-m", "vmcr2", *words]
    done = subprocess.run(command, cwd=place, env=environment(place), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def said(place: Path) -> dict[str, str]:
    """What every command has printed, but for the last one, which does not end."""
    return {" ".join(words): run(place, words) for words in commands()[:-1]}


@pytest.fixture(scope="module")
def answers(place: Path, said: dict[str, str]) -> dict[str, dict[str, str]]:
    assert len(said) == 7
    with (place / "answers.csv").open(newline="") as stream:
        return {row["input"]: row for row in csv.DictReader(stream)}


def test_the_block_tells_the_whole_story() -> None:
    verbs = [words[0] for words in commands()]
    assert verbs == ["data", "train", "predict", "predict", "embed", "neighbors", "export", "serve"]


def test_new_pictures_are_known_and_noise_is_refused(said: dict[str, str], answers: dict[str, Any]) -> None:
    """Seeds 0, 1, 2: 0.989, 0.981, 0.992 of the digits are right, 0.03, 0.04, 0.06 of them and all noise refused."""
    known = answers[KNOWN]
    noise = [row for name, row in answers.items() if "noise" in name]
    digits = {name: row for name, row in answers.items() if "noise" not in name}
    assert (len(noise), len(digits)) == (20, 360)
    right = [row["likeliest"] == name.rpartition("-")[2].removesuffix(".png") for name, row in digits.items()]
    assert sum(right) > 0.95 * 360
    assert known["class"] == "six"
    assert float(known["probability"]) > 0.9
    assert known["refused"] == "False"
    assert sum(row["refused"] == "True" for row in noise) >= 10
    assert sum(row["refused"] == "True" for row in digits.values()) < 0.2 * 360
    assert re.search(rf"{KNOWN} +six +0\.\d+", said[f"predict runs/mine {KNOWN}"])


def test_features_and_neighbours_are_there(place: Path, said: dict[str, str], answers: dict[str, Any]) -> None:
    with np.load(place / "features.npz") as found:
        assert found["features"].shape == (1437, 128)
        assert len(found["names"]) == 1437
    (line,) = said[f"neighbors runs/mine {KNOWN} -o nearest.png"].splitlines()
    assert line.startswith(f"{KNOWN}: six ")
    with Image.open(place / "nearest.png") as sheet:
        assert sheet.width > 500


def test_onnxruntime_says_the_same(place: Path, answers: dict[str, dict[str, str]]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(place / "model.onnx")
    names = json.loads(session.get_modelmeta().custom_metadata_map["class_names"])
    for name, row in answers.items():
        pixels = np.asarray(Image.open(place / name))[None, None]
        label, probabilities, novelty, _ = session.run(None, {session.get_inputs()[0].name: pixels})
        assert names[int(label[0])] == row["likeliest"]
        assert float(probabilities.max()) == pytest.approx(float(row["probability"]), abs=1e-4)
        assert float(novelty[0]) == pytest.approx(float(row["novelty"]), abs=1e-4)


@pytest.fixture
def served(place: Path, answers: Any) -> Iterator[str]:
    """The address of `vmcr2 serve runs/mine`, on a port that is free."""
    pytest.importorskip("fastapi")
    words = [sys.executable, "-u", "-m", "vmcr2", *commands()[-1], "--port", "0"]
    process = subprocess.Popen(words, cwd=place, env=environment(place), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = next((m for line in process.stdout if (m := re.search(r"http://127\.0\.0\.1:\d+", line))), None)
        assert found is not None, "the server has not said where it is"
        yield found[0]
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.browser
def test_the_page_shows_it(served: str, browser: Browser, place: Path, answers: dict[str, dict[str, str]]) -> None:
    browser.open(f"{served}/")
    browser.ask(DROP, base64.b64encode((place / KNOWN).read_bytes()).decode())
    browser.wait_for("return document.querySelectorAll('#answers > article').length > 0")
    assert browser.ask("return document.querySelector('#answers h2').innerText") == "six"
    text = browser.ask("return document.querySelector('#answers > article').innerText")
    (shown,) = re.findall(r"Probability ([\d.]+) %", text)
    assert float(shown) == pytest.approx(100 * float(answers[KNOWN]["probability"]), abs=0.11)
    assert browser.ask("return document.querySelectorAll('#answers > article img').length") >= 3
    assert not browser.complaints()
