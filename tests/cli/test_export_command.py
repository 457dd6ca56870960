"""`vmcr2 export`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import in_process
from digits_trainer import quick

from vmcr2.runs import Run, fit

pytest.importorskip("onnxscript")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(quick("vmcr2", epochs=2), out=tmp_path_factory.mktemp("runs") / "mine")


def test_it_writes_checks_and_says_so(run: Run, tmp_path: Path) -> None:
    said = in_process("export", str(run.folder), "-o", str(tmp_path / "model.onnx"))
    assert (said.code, said.err) == (0, "")
    first, second = said.out.splitlines()
    assert first.startswith(f"{tmp_path / 'model.onnx'}: 10 classes, uint8 n×1×8×8 for any n, 0.0 MB")
    assert second.startswith("checked: batches of 1, 2, 7 differ from the run by at most ")
    assert float(second.rpartition(" ")[2]) < 1e-4
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_json(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    said = in_process("export", str(run.folder), "-o", str(path), "--json")
    found = json.loads(said.out)
    assert found["difference"] < 1e-4
    assert (found["file"], found["bytes"], found["calibrated"]) == (str(path), path.stat().st_size, True)


def test_an_existing_file_needs_force(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_text("mine")
    said = in_process("export", str(run.folder), "-o", str(path))
    assert (said.code, said.out) == (2, "")
    assert said.err == f"vmcr2: {path} already exists: choose another name, or --force (force=True) to replace it\n"
    assert path.read_text() == "mine"
    assert in_process("export", str(run.folder), "-o", str(path), "--force").code == 0
    assert path.stat().st_size > 1000


def test_mistakes_are_one_sentence(run: Run, tmp_path: Path) -> None:
    for folder, name, expected in (
        (run.folder, "model.h5", r"model.h5 must end in .onnx (for onnxruntime) or .pt2 (for torch.export.load)"),
        (tmp_path, "model.pt2", f"{tmp_path} is not a run folder: it has no config.json"),
    ):
        said = in_process("export", str(folder), "-o", str(tmp_path / name))
        assert said.code == 2
        assert expected in said.err
        assert len(said.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_published_run_without_calibration(run: Run, tmp_path: Path) -> None:
    from dataclasses import replace

    replace(run, confidence=None).save_pretrained(tmp_path / "published")
    said = in_process("export", str(tmp_path / "published"), "-o", str(tmp_path / "model.pt2"))
    assert said.code == 0
    assert said.err == "vmcr2: the run is not calibrated: the file's probabilities are not either\n"
