"""Outputs that are closed or full, long names, paths that are no UTF-8: a command goes on, or says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import in_process
from digits_trainer import quick
from picture_folders import write_classes

from tests.faults.kill import ROOT, SMALL, Zygote
from vmcr2.report import page, read_run
from vmcr2.runs import RunFolder, fit

TRAIN = ["train", "digits", "--set", "epochs=2", *SMALL]


def said(place: Path) -> str:
    return place.with_suffix(".log").read_text()


@pytest.mark.parametrize("output", ["closed", "unread", "/dev/full"])
def test_a_run_goes_on_when_nobody_can_hear_it(output: str, place: Path, zygote: Zygote) -> None:
    zygote.start([*TRAIN, "--out", "run"], place, {}, output)
    assert zygote.end() == 0, said(place)
    assert (place / "run" / "report.html").exists()
    full = "vmcr2: the standard output could not be written: No space left on device\n"
    assert said(place) == (full if output == "/dev/full" else "")
    # no file of the run took the place of the closed output
    assert not any(b"nearest subspace" in path.read_bytes() for path in (place / "run").glob("*.json*"))


@pytest.mark.parametrize(("output", "code"), [("closed", 0), ("unread", 0), ("/dev/full", 2)])
def test_a_command_whose_output_is_its_result_says_that_it_is_lost(
    output: str, code: int, place: Path, zygote: Zygote
) -> None:
    zygote.start(["recipes"], place, {}, output)
    assert zygote.end() == code
    assert ("could not be written: No space left on device" in said(place)) == (code == 2)
    assert said(place).count("\n") == (code == 2)


def test_names_of_300_letters_are_one_sentence(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    long = "n" * 300
    run = fit(quick("ce", epochs=1), out=place / "run")
    for line in (
        [*TRAIN, "--out", long],
        ["sweep", "digits", "--grid", "lr=0.1", "--epochs", "1", *SMALL, "--out", long],
        ["report", str(run.folder), "-o", f"{long}.html"],
        ["evaluate", long],
        ["train", long],
        ["report", long],
    ):
        found = in_process(*line)
        assert found.code == 2, line
        assert found.err.count("\n") == 1, found.err
        assert found.err.startswith("vmcr2: ")


def test_a_name_as_long_as_a_name_may_be(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its temporary file has a shorter one; the run's own folder too."""
    monkeypatch.chdir(place)
    run = fit(quick("ce", epochs=1), out=place / "run")
    assert in_process("report", str(run.folder), "-o", "é" * 125 + ".html").code == 0
    write_classes(place / ("ü" * 120), each=40)
    found = in_process("train", "ü" * 120, "--epochs", "1", "--model", "mlp", "--json", *SMALL)
    assert found.code == 0, found.err
    assert RunFolder(Path(json.loads(found.out)["folder"])).finished
    assert not list(place.rglob("*.tmp"))


def test_paths_that_are_no_utf_8(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    odd = os.fsdecode(b"caf\xe9")
    write_classes(place / odd, names=("glück", "pech"), each=40)
    found = in_process("train", odd, "--epochs", "1", "--model", "mlp", "--out", f"run-{odd}", *SMALL)
    assert found.code == 0, found.err
    folder = RunFolder(place / f"run-{odd}")
    assert Path(folder.read_config().data.path or "").name == odd
    assert folder.class_names == ("glück", "pech")
    assert "</html>" in page([read_run(folder.path)])
    assert (folder.path / "report.html").exists()
    assert in_process("train", "--resume", "--out", f"run-{odd}").code == 0
    assert in_process("report", f"run-{odd}", "--table", "md").code == 0
    assert in_process("predict", f"run-{odd}", odd, "-o", "out.csv").code == 0


def test_a_terminal_of_ascii_alone(place: Path) -> None:
    """LC_ALL=C, and Python told not to make the best of it: files are UTF-8 all the same."""
    rows = "".join(f"{n},{n % 7},{'käfer' if n % 2 else '鳥'}\n" for n in range(120))
    (place / "tiere.csv").write_text("größe,x,art\n" + rows, encoding="utf-8")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "vmcr2", "train", "tiere.csv", "--label", "art", "--epochs", "1", "--out", "run"]
    done = subprocess.run(line, cwd=place, env=os.environ | plain, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(RunFolder(place / "run").class_names) == {"käfer", "鳥"}
    assert "käfer" in (place / "run" / "report.html").read_text(encoding="utf-8")


def test_names_in_a_table_of_markdown_are_text(place: Path) -> None:
    run = fit(quick("ce", epochs=1), out=place / "run")
    name = "<script>alert(1)</script>\n# big\n|x|`y`[z](javascript:1)*b*"
    folder = RunFolder(run.folder)
    config = folder.read_config().replace(recipe=name)
    folder.write_config(config)
    found = in_process("report", str(run.folder), "--table", "md")
    assert found.code == 0
    (row,) = (line for line in found.out.splitlines() if "alert" in line)
    shown = r"&lt;script&gt;alert(1)&lt;/script&gt; # big \|x\|\`y\`\[z](javascript:1)\*b\*"
    assert row.startswith(f"| {shown} | 1 |")
    assert "\n" not in in_process("report", str(run.folder), "--table", "latex").out.split("alert")[1].split("&")[0]
