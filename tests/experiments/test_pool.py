"""The pool that the search and the ledger share: a worker that dies costs one job."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "experiments"


def square(number: int) -> int:
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


@pytest.fixture
def make_all(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.delitem(sys.modules, "_pool", raising=False)
    import _pool

    return _pool.make_all


@pytest.mark.parametrize("parallel", [1, 2])
def test_what_kills_its_worker_is_given_up_and_the_others_are_made(make_all, parallel, capsys) -> None:  # type: ignore[no-untyped-def]
    found: dict[int, int] = {}
    make_all(
        [2, -1, 3, 4], square, lambda job, result, since: found.update({job: result}), parallel=parallel, seconds=60
    )
    assert found == {2: 4, 3: 9, 4: 16}
    said = capsys.readouterr().out
    assert "given up, it kills its worker: -1" in said
    assert said.count("given up") == 1


def test_a_death_while_a_result_is_handed_over_costs_nothing_else(make_all) -> None:  # type: ignore[no-untyped-def]
    """The pool then breaks when the next job is handed to it."""
    found: dict[int, int] = {}

    def slowly(job: int, result: int, since: float) -> None:
        time.sleep(1.0)
        found[job] = result

    make_all([1, -1, 2, 3], square, slowly, parallel=2, seconds=60)
    assert found == {1: 1, 2: 4, 3: 9}


def test_nothing_is_begun_after_its_time(make_all, capsys) -> None:  # type: ignore[no-untyped-def]
    found: list[int] = []
    make_all([1, 2, 3], square, lambda job, result, since: found.append(job), parallel=1, seconds=0.0)
    assert found == []
    assert "out of time, 3 runs left" in capsys.readouterr().out
