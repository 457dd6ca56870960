"""Files of answers and features: what is written is read again, and nothing is overwritten."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vmcr2._shared import UserError
from vmcr2.inference import check_output, rows_file, save_features

ROWS: dict[str, list[Any]] = {"input": ["a,b.png", "ü.png"], "class": ["x", 'y"'], "probability": [0.5, 0.25]}
MORE: dict[str, list[Any]] = {"input": ["\udcff.png"], "class": ["z"], "probability": [1.0]}  # no UTF-8


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as stream:
            return [{**row, "probability": float(row["probability"])} for row in csv.DictReader(stream)]
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    parquet = pytest.importorskip("pyarrow.parquet")
    found: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return found


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_rows_come_back(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{suffix}"
    with rows_file(path) as write:
        write(ROWS)
        assert not path.exists()  # it appears when it is whole
        write(MORE)
    rows = read(path)
    assert [row["probability"] for row in rows] == [0.5, 0.25, 1.0]
    assert [row["class"] for row in rows] == ["x", 'y"', "z"]
    assert [row["input"] for row in rows[:2]] == ["a,b.png", "ü.png"]
    assert rows[2]["input"] in ("\udcff.png", "\\udcff.png")  # JSON can write it, the others show it
    assert [part.name for part in tmp_path.iterdir()] == [path.name]


FORMULAS = ['=HYPERLINK("http://x","y")', "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_names_that_are_formulas_are_texts_in_a_spreadsheet(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{suffix}"
    names = [*FORMULAS, "-1", "+2.5e3", "a=b"]
    with rows_file(path) as write:
        write({"input": names, "=class": names, "probability": [-0.5] * len(names)})
    rows = read(path)
    shown = [f"'{name}" for name in FORMULAS] + names[-3:] if suffix == ".csv" else names
    assert [row["input"] for row in rows] == shown
    assert [row["probability"] for row in rows] == [-0.5] * len(names)
    assert [row["'=class" if suffix == ".csv" else "=class"] for row in rows] == shown


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_an_error_leaves_the_old_file(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{suffix}"
    path.write_text("old")
    with pytest.raises(ValueError, match=r"shorter|expected length"), rows_file(path) as write:
        write({"input": ["a", "b"], "class": ["x"]})
    assert path.read_text() == "old"
    assert [part.name for part in tmp_path.iterdir()] == [path.name]


def test_parquet_keeps_columns_without_values(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "out.parquet"
    with rows_file(path) as write:
        write({"input": ["a"], "probability": [None]})
        write({"input": ["b"], "probability": [None]})
    assert read(path) == [{"input": "a", "probability": None}, {"input": "b", "probability": None}]


def test_parquet_takes_texts_after_rows_without_any(tmp_path: Path) -> None:
    """All samples of the first block may be refused; a class's folder may have a name that is no UTF-8."""
    pytest.importorskip("pyarrow")
    with rows_file(tmp_path / "out.parquet", texts=("class",)) as write:
        write({"input": ["a", "b"], "class": [None, None]})
        write({"input": ["c", "d"], "class": [None, "caf\udce9"]})
    assert [row["class"] for row in read(tmp_path / "out.parquet")] == [None, None, None, "caf\\udce9"]


def test_outputs_are_checked_before_any_work(tmp_path: Path) -> None:
    known = (".csv", ".jsonl", ".parquet")
    check_output(tmp_path / "new.CSV", known)
    with pytest.raises(UserError, match=r"out\.txt must end in \.csv, \.jsonl or \.parquet"):
        check_output(tmp_path / "out.txt", known)
    with pytest.raises(UserError, match=r"there is no folder .*nowhere: create it first"):
        check_output(tmp_path / "nowhere" / "out.csv", known)
    (tmp_path / "there.csv").write_text("mine")
    with pytest.raises(UserError, match=r"there\.csv already exists: .*--force"):
        check_output(tmp_path / "there.csv", known)
    check_output(tmp_path / "there.csv", known, force=True)


def test_features_come_back(tmp_path: Path) -> None:
    one, two = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((1, 3), dtype=np.float32)
    save_features(tmp_path / "f.npz", [(["a", "b"], one), (["c"], two)])
    with np.load(tmp_path / "f.npz", allow_pickle=False) as found:
        assert found["names"].tolist() == ["a", "b", "c"]
        assert np.array_equal(found["features"], np.concatenate([one, two]))
