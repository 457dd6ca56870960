"""The pool that the search and the ledger share: a worker that dies costs one job."""

from __future__ import annotations

import importlib
import os
import signal
import time
from pathlib import Path
from types import ModuleType

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def square(number: int) -> int:
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXPERIMENTS)
    return importlib.import_module("_pool")


@pytest.mark.parametrize("parallel", [1, 2])
def test_what_kills_its_worker_is_given_up_and_the_others_are_made(
    pool: ModuleType, parallel: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[int, int] = {}
    pool.make_all(
        [2, -1, 3, 4], square, lambda job, result, since: found.update({job: result}), parallel=parallel, seconds=60
    )
    assert found == {2: 4, 3: 9, 4: 16}
    said = capsys.readouterr().out
    assert "given up, it kills its worker: -1" in said
    assert said.count("given up") == 1


def test_a_death_while_a_result_is_handed_over_costs_nothing_else(pool: ModuleType) -> None:
    """The pool then breaks when the next job is handed to it."""
    found: dict[int, int] = {}

    def slowly(job: int, result: int, since: float) -> None:
        time.sleep(1.0)
        found[job] = result

    pool.make_all([1, -1, 2, 3], square, slowly, parallel=2, seconds=60)
    assert found == {1: 1, 2: 4, 3: 9}


def test_nothing_is_begun_after_its_time(pool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    found: list[int] = []
    pool.make_all([1, 2, 3], square, lambda job, result, since: found.append(job), parallel=1, seconds=0.0)
    assert found == []
    assert "out of time, 3 runs left" in capsys.readouterr().out
