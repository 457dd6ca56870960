"""Runs to report on: real ones of a moment on digits, and folders made by hand. Tests only look at them."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import HOSTILE, write_run

from vmcr2.runs import fit, recipe


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One run of each objective on digits, three epochs."""
    root = tmp_path_factory.mktemp("real")
    for objective in ("vmcr2", "mcr2", "ce"):
        fit(recipe("digits", objective=objective, epochs=3, eval_every=1), out=root / objective)
    return {objective: root / objective for objective in ("vmcr2", "mcr2", "ce")}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders by hand, by what is special about them."""
    root = tmp_path_factory.mktemp("made")
    runs = {
        "plain": write_run(root / "plain"),
        "hundred": write_run(root / "hundred", classes=100, epochs=2000, dim=500),
        "two-hundred": write_run(root / "tiny", recipe="tiny-imagenet-vmcr2", classes=200, dim=400),
        "hostile": write_run(root / "hostile", names=HOSTILE + list("ghij")),
        "one-epoch": write_run(root / "one", epochs=1),
        "failed": write_run(root / "failed", epochs=50, done=7),
        "at-once": write_run(root / "at-once", epochs=50, done=0),
        "old": write_run(root / "old", old=True),
        "holdout": write_run(root / "holdout", holdout=5000),
        "ce": write_run(root / "ce", recipe="cifar100-ce"),
        "mcr2": write_run(root / "mcr2", recipe="cifar100-mcr2"),
    }
    for seed in (1, 2):
        runs[f"seed{seed}"] = write_run(root / f"seed{seed}", seed=seed)
    return runs
