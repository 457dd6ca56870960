"""The suite's seed and threads are environment variables, so that it can be run under others.

VMCR2_TEST_SEED=3 VMCR2_TEST_THREADS=2 make test
"""

from __future__ import annotations

import os
import signal

import pytest
import torch

SEED = int(os.environ.get("VMCR2_TEST_SEED", "0"))

torch.set_num_threads(int(os.environ.get("VMCR2_TEST_THREADS", "1")))


def pytest_configure() -> None:
    """A shell that starts something behind `&` has it ignore Ctrl-C, and what it starts too; tests press Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(SEED)


@pytest.fixture(autouse=True)
def _on_the_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a GPU, only tests marked so use it: bit-identity is promised on a CPU."""
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
