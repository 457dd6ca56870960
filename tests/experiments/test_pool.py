"""The ledger's pool: a worker that dies costs one job, and nothing starts after its time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.ledger._pool import make_all
from vmcr2.sweep import Outcome


class Square:
    """Of a number; a negative one kills its worker."""

    def __call__(self, number: int, told_to_stop: Callable[[], bool]) -> Outcome:
        if number < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return Outcome({"square": number * number, "worker": os.getpid()})


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_job_that_kills_its_worker_is_lost_and_the_others_are_made(
    parallel: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[int, Outcome] = {}

    def ended(job: int, outcome: Outcome, since: float) -> None:
        assert since > 0
        found[job] = outcome

    with pytest.raises(SystemExit, match="1 of 4 runs ended without a result; the same command tries them again"):
        make_all([2, -1, 3, 4], Square, ended, folder=tmp_path, parallel=parallel, seconds=60)
    assert {job: outcome.figures.get("square") for job, outcome in found.items()} == {2: 4, -1: None, 3: 9, 4: 16}
    assert found[-1].lost == "worker ended (signal 9)"
    assert [job for job, outcome in found.items() if outcome.lost is not None] == [-1]
    if parallel == 1:  # one worker for 2, and another, in the dead one's place, for both that were left
        workers = [outcome.figures["worker"] for outcome in found.values() if outcome.figures]
        assert workers[0] != workers[1] == workers[2]
    assert "4 runs" in capsys.readouterr().out


def test_none_at_a_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="at least 1, got 0"):
        make_all([1], Square, print, folder=tmp_path, parallel=0, seconds=60)


def test_nothing_starts_after_its_time(
    in_this_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[int] = []

    def slowly(job: int, outcome: Outcome, since: float) -> None:
        found.append(job)
        time.sleep(0.6)

    make_all([1, 2, 3], Square, slowly, folder=tmp_path, parallel=1, seconds=0.5)
    assert found == [1]
    assert "out of time, 2 runs left" in capsys.readouterr().out
