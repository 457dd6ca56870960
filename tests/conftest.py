"""What every test starts from. Two environment variables let people run the suite in other conditions:

``VMCR2_TEST_SEED=3 VMCR2_TEST_THREADS=2 make test``

A third, ``HYPOTHESIS_PROFILE=long``, draws 2,000 examples in every test of tests/extremes instead of 25, 30,000 in all.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest
import torch
from page_browser import Browser, open_browser
from seeds import SEED

torch.set_num_threads(int(os.environ.get("VMCR2_TEST_THREADS", "1")))


_COMMON = {"deadline": None, "database": None, "suppress_health_check": list(hypothesis.HealthCheck)}
hypothesis.settings.register_profile("quick", max_examples=25, **_COMMON)
hypothesis.settings.register_profile("long", max_examples=2000, **_COMMON)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_configure() -> None:
    """Tests send signals. Started by a shell with `&`, pytest ignores SIGINT; by nohup, SIGHUP: so would its runs."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


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
    """Only tests marked gpu use a GPU: bit-identical results are promised on a CPU."""
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed pictures of tests do not go to the person's own cache; what one test packs, others may use."""
    monkeypatch.setenv("VMCR2_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened
