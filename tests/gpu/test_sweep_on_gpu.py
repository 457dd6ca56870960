"""On a CUDA device: several runs of a sweep share it, and nothing of MPS is left behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import vmcr2
from vmcr2.sweep._mps import CONTROL

pytestmark = pytest.mark.gpu

ROOT = Path(vmcr2.__file__).parent.parent
COMMAND = ("sweep", "digits", "--epochs", "3", "--grid", "lr=0.1,0.3", "--seeds", "0,1", "--device", "cuda")


def said_by(cwd: Path, *more: str) -> str:
    (cwd / "temporary").mkdir(exist_ok=True)
    done = (
        subprocess.run(  # a process of its own: this one is on the GPU already, and MPS is for those who come after it
            [sys.executable, "-m", "vmcr2", *COMMAND, *more],
            cwd=cwd,
            env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(cwd / "temporary")},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    )
    assert done.returncode == 0, done
    return done.stdout


def test_two_at_a_time_give_what_one_after_another_gives(tmp_path: Path) -> None:
    said_by(tmp_path, "--out", "one")
    said = said_by(tmp_path, "--out", "two", "--parallel", "2")
    assert "2 runs at a time" in said
    if shutil.which(CONTROL):
        assert "through MPS" in said
    assert not [*(tmp_path / "temporary").glob("vmcr2-mps-*"), *Path("/tmp").glob("vmcr2-mps-*")]
    one, two = (
        {line["id"]: line for line in map(json.loads, (tmp_path / name / "results.jsonl").read_text().splitlines())}
        for name in ("one", "two")
    )
    assert one.keys() == two.keys()
    assert len(two) == 4
    for point, line in two.items():
        assert line["device"] == torch.cuda.get_device_name()
        assert line["holdout_accuracy"] == pytest.approx(one[point]["holdout_accuracy"], abs=0.05)
        assert line["train_delta_r"] == pytest.approx(one[point]["train_delta_r"], rel=0.05)
