"""Runs to serve: of pictures, not calibrated, of a table. Tests only look at them."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sklearn.datasets import load_wine

from vmcr2.data import from_table
from vmcr2.runs import Run, fit, load_run, recipe
from vmcr2.serve import create_app


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return fit(
        recipe("digits", objective="mcr2", epochs=30, device="cpu"), out=tmp_path_factory.mktemp("serve") / "digits"
    )


@pytest.fixture(scope="session")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Neither calibrated nor with kept samples."""
    config = recipe("digits", objective="ce", epochs=3, calibration_share=0.0, kept_samples=0, device="cpu")
    return fit(config, out=tmp_path_factory.mktemp("serve") / "plain")


@pytest.fixture(scope="session")
def wine_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of a table with numbers and a text column."""
    folder = tmp_path_factory.mktemp("serve")
    x, y = load_wine(return_X_y=True)
    with (folder / "wine.csv").open("w", newline="") as file:
        write = csv.writer(file)
        write.writerow(["alcohol", "ash", "flavanoids", "proline", "colour", "cultivar"])
        for row, label in zip(x, y, strict=True):
            numbers = [f"{row[at]:.6g}" for at in (0, 2, 6, 12)]
            write.writerow([*numbers, ("pale", "deep")[int(row[9] > 5)], f"barrel {label}"])
    source = from_table(folder / "wine.csv", label="cultivar")
    config = recipe("auto", data=source, epochs=30, hidden=(32,), dim=30, device="cpu")
    return load_run(fit(config, out=folder / "wine", source=source).folder, device="cpu")


@pytest.fixture(scope="session")
def digits_folder(digits_run: Run) -> Path:
    return digits_run.folder


@pytest.fixture
def client(digits_run: Run) -> Iterator[TestClient]:
    with TestClient(create_app(digits_run)) as opened:
        yield opened
