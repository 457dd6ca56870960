"""Killed commands go on to the same result. `python -m tests.faults.kill --kills 200` is the long profile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist
from seeds import SEED

from tests.faults.kill import Harness, Zygote, commands

KILLS = {"train": 4, "train on pictures": 2, "sweep": 2, "data pack": 2, "predict": 2, "train with 2 ranks": 1}


@pytest.mark.parametrize("name", list(KILLS))
def test_a_killed_command_ends_as_if_nobody_had_disturbed_it(name: str, tmp_path: Path, zygote: Zygote) -> None:
    command = commands()[name]
    if command.ranks > 1 and not dist.is_available():
        pytest.skip("this torch has no torch.distributed")
    harness = Harness(command, tmp_path.resolve(), zygote, SEED)
    assert {"write", "before replace", "after replace"} <= set(harness.moments) or name == "data pack"
    found = harness.disturb(KILLS[name])
    assert found.defects == []
    assert found.kills == KILLS[name]


def test_a_page_that_a_kill_took_is_made_by_resume(place: Path, zygote: Zygote) -> None:
    """Also that of a run that was extended, whose old page is there."""
    argv = ["train", "digits", "--resume", "--out", str(place / "run"), "--set", "hidden=32", "--set", "dim=32"]

    def attempt(*more: str, at: int = 0, log: str = "") -> int:
        zygote.start([*argv, *more], place, {"VMCR2_KILL_UNDER": str(place / "run" / ".report")} | kill(at, log))
        return zygote.end()

    def kill(at: int, log: str) -> dict[str, str]:
        return {"VMCR2_KILL_AT": str(at), "VMCR2_KILL_LOG": log}

    page = place / "run" / "report.html"
    assert attempt("--set", "epochs=2", at=1) == -9  # in the middle of the page
    assert (place / "run" / "summary.json").exists()
    assert not page.exists()
    assert list((place / "run").glob(".report*"))
    assert attempt() == 0
    assert page.exists()
    assert not list((place / "run").glob(".report*"))
    old = page.read_bytes()
    assert attempt("--epochs", "3", at=1) == -9
    assert page.read_bytes() == old
    assert attempt() == 0
    assert page.read_bytes() != old
    new = page.stat().st_mtime_ns
    assert attempt() == 0
    assert page.stat().st_mtime_ns == new  # it is current: nothing is written
