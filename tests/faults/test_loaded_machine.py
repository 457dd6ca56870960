"""Many runs at once under one `runs/`, and two that want the same folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import in_process
from digits_trainer import quick
from run_files import same, weights
from seeds import SEED

from tests.faults.kill import ROOT
from vmcr2.runs import RunFolder, _folder, fit

MANY = """
import os, sys, time
import torch
from vmcr2.data import open_data
from vmcr2.runs import fit, recipe
torch.set_num_threads(1)
open_data("digits").test()  # imports scikit-learn, once for all
count, *settings = sys.argv[1:]
config = recipe("digits", device="cpu").with_settings(settings)
start = time.time() + 1.0
children = []
for number in range(int(count)):
    if not (pid := os.fork()):
        time.sleep(max(0.0, start - time.time()))  # all begin in the same second, and want the same name
        code = 1
        try:
            fit(config)
            code = 0
        finally:
            os._exit(code)
    children.append(pid)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in children))
"""


def test_twenty_runs_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    settings = ["epochs=2", "hidden=32", "dim=32", "atoms_per_class=3", "checkpoint_seconds=0", f"seed={SEED}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", MANY, "20", *settings]
    done = subprocess.run(line, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folders = sorted((tmp_path / "runs").iterdir())
    assert len(folders) == 20
    first = weights(folders[0])
    for folder in folders:
        assert RunFolder(folder).finished
        assert same(weights(folder), first)  # they have one seed
        assert not list(folder.rglob("*.tmp"))


def test_the_second_to_resume_a_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(fit(quick("ce", epochs=2), out=tmp_path / "run").folder)
    folder.summary.unlink()
    monkeypatch.setattr(_folder, "_PATIENCE", 0.1)
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    with folder.held():
        said = in_process("train", "--resume", "--out", str(folder.path))
    assert said.code == 2
    assert said.err == (
        f"vmcr2: another process is at work in {folder.path}: wait until it ends, or choose another folder\n"
    )
    assert {path: path.read_bytes() for path in before} == before
    assert in_process("train", "--resume", "--out", str(folder.path)).code == 0
