"""Processes that work together, started once for all tests, also where several pytest workers share these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from pool import work

from vmcr2._shared import lock

# four processes on two slow cores, beside other tests; here it was a minute and a half
SECONDS = 1200


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Any of these tests may be the one that starts the processes, or waits for them."""
    for item in items:
        if "results" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session", params=[2, 4])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of so many processes. ``results["folder"]`` is where they wrote their runs."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / f"ranks-{request.param}"
    folder.mkdir(exist_ok=True)
    with lock(folder, patience=SECONDS / 2):
        if not (folder / "results.pt").exists():
            (folder / "meet").unlink(missing_ok=True)  # of processes that failed: new ones would wait for those
            mp.start_processes(work, args=(request.param, str(folder)), nprocs=request.param, start_method="spawn")
    found: dict[str, Any] = torch.load(folder / "results.pt", weights_only=False)
    return found | {"folder": Path(folder), "world": request.param}
