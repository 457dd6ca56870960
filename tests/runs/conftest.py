"""What the tests of runs share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from digits_trainer import quick

from vmcr2.runs import Run, fit

Finished = Callable[[str], Run]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The quick run of an objective, made once, calibrated. Tests that write make one of their own."""
    made: dict[str, Run] = {}

    def of(objective: str) -> Run:
        if objective not in made:
            made[objective] = fit(quick(objective), out=tmp_path_factory.mktemp("finished") / objective)
        return made[objective]

    return of
