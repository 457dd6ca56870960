"""What the tests of the experiments' scripts share."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """experiments/_pool.py."""
    monkeypatch.syspath_prepend(EXPERIMENTS)
    return importlib.import_module("_pool")


@pytest.fixture
def in_this_process(pool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts make their runs here, where a test can count them and put its own in their place."""

    def made_here(jobs: Iterable[Any], new_maker: Callable[[], Any], report: Any, **_: Any) -> None:
        make = new_maker()
        for job in jobs:
            report(job, make(job, lambda: False))

    monkeypatch.setattr(pool, "run_in_processes", made_here)
