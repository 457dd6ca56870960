"""Where the commands of these tests work."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def bare_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder that is also the home, and no data of the person's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VMCR2_DATA", raising=False)
