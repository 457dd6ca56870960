"""What the tests of the experiments share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from experiments.ledger import _pool


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are made here and not in workers, where a test can put its own in their place."""

    def made_here(jobs: Iterable[Any], new_maker: Callable[[], Any], report: Any, **_: Any) -> None:
        make = new_maker()
        for job in jobs:
            report(job, make(job, lambda: False))

    monkeypatch.setattr(_pool, "run_in_processes", made_here)
