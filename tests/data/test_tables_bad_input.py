"""Tables that cannot be trained on: one sentence each, that says what is wrong, where, and what to do."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from table_files import people, write_csv

from vmcr2.data import DataError, from_table

GOOD = {"x": list(range(20)), "label": ["a", "b"] * 10}


def csv_text(text: str) -> Callable[[Path], dict[str, Any]]:
    def write(folder: Path) -> dict[str, Any]:
        (folder / "t.csv").write_text(text)
        return {"path": folder / "t.csv"}

    return write


def table(label: str | None = None, /, **columns: Any) -> Callable[[Path], dict[str, Any]]:
    return lambda folder: {"path": write_csv(folder / "t.csv", columns), "label": label}


def raw(name: str, content: bytes) -> Callable[[Path], dict[str, Any]]:
    def write(folder: Path) -> dict[str, Any]:
        (folder / name).write_bytes(content)
        return {"path": folder / name}

    return write


def with_test(**columns: Any) -> Callable[[Path], dict[str, Any]]:
    def write(folder: Path) -> dict[str, Any]:
        return {"path": write_csv(folder / "t.csv", GOOD), "test": write_csv(folder / "test.csv", columns)}

    return write


def arrays(label: str | None = None, /, **given: Any) -> Callable[[Path], dict[str, Any]]:
    def write(folder: Path) -> dict[str, Any]:
        np.savez(folder / "t.npz", **given)
        return {"path": folder / "t.npz", "label": label}

    return write


def array(given: Any, label: str | None = None) -> Callable[[Path], dict[str, Any]]:
    def write(folder: Path) -> dict[str, Any]:
        np.save(folder / "t.npy", given)
        return {"path": folder / "t.npy", "label": label}

    return write


X = np.arange(40.0).reshape(20, 2)
Y = np.arange(20) % 2
CASES: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "an address": (lambda _: {"path": "https://example.org/t.csv"}, "is an address, and vmcr2 downloads nothing"),
    "an address as Path": (lambda _: {"path": Path("s3://bucket/t.csv")}, "is an address"),
    "no file": (lambda folder: {"path": folder / "none.csv"}, "none.csv does not exist: correct the path"),
    "a folder": (lambda folder: {"path": folder}, "is a folder, not a table"),
    "another format": (raw("t.xlsx", b"PK"), r"save it as one of \.csv"),
    "empty": (csv_text(""), "t.csv is empty"),
    "blank lines": (csv_text("\n\n \n"), "t.csv is empty"),
    "names alone": (csv_text("x,label\n"), "has column names but no rows"),
    "one column": (csv_text("label\na\nb\na\nb\n"), "no column beside the label label"),
    "latin-1": (raw("t.csv", "x,label\n1,caf\xe9\n".encode("latin-1")), "is not UTF-8 text .*0xe9.*save it as UTF-8"),
    "utf-16": (raw("t.csv", "x,label\n1,a\n".encode("utf-16")), "is not UTF-8 text"),
    "binary": (raw("t.csv", b"a,b\0\0\n1,2\n"), "is not a text file"),
    "short line": (csv_text("x,z,label\n1,2,a\n1,b\n"), "line 3 of .* has 2 cells, but the first line has 3"),
    "long line": (csv_text("x,label\n1,a\n2,b\n1,2,a\n"), "line 4 of .* has 3 cells, but the first line has 2"),
    "open quote": (csv_text('x,label\n1,a\n"2,b\n3,a\n'), "has 1 cell, but the first line has 2"),
    "names twice": (csv_text("x,x,label\n1,2,a\n"), "more than one column with the name x"),
    "no label column": (table("kind", **GOOD), "has no column kind: the columns are x, label"),
    "close to a column": (table("labl", **GOOD), "has no column labl: did you mean label"),
    "no usual label": (table(x=GOOD["x"], kind=GOOD["label"]), "give --label COLUMN, one of x, kind"),
    "two usual labels": (table(y=GOOD["x"], label=GOOD["label"]), "the columns y and label may both have them"),
    "float targets": (
        table("price", x=range(20), price=[at + 0.5 for at in range(20)]),
        "the column price of .*t.csv has 20 different numbers with fractions such as 0.5: it is a quantity",
    ),
    "ids as labels": (table("x", **GOOD), "20 different values in 20 rows, and 20 of them occur once: it is an id"),
    "dates as labels": (
        table("day", x=range(20), day=[f"2024-01-{at + 1:02}" for at in range(20)]),
        "it is an id or a quantity, not a class",
    ),
    "one class": (table(x=range(20), label=["a"] * 20), "has one class, a, in all rows: training needs at least two"),
    "no labels": (table(x=range(20), label=[None] * 20), "the column label of .* is empty in every row"),
    "constant columns": (table(x=[1] * 20, label=GOOD["label"]), r"no column to learn from, left out: x \(constant\)"),
    "infinite": (
        table(x=[*range(19), "inf"], label=GOOD["label"]),
        "column x of .*t.csv has an infinite .* row 20",
    ),
    "infinite label": (table(x=range(20), label=[1, "inf"] * 10), "has an infinite number"),
    "decimal commas": (
        lambda folder: {
            "path": write_csv(
                folder / "t.csv", {"x": [f"{at},5" for at in range(20)], "label": GOOD["label"]}, delimiter=";"
            )
        },
        "t.csv: the column x writes numbers with a comma, as in",
    ),
    "other labels": (
        with_test(x=[1, 2], label=["a", "c"]),
        "test.csv has classes that the training rows do not have, c: remove these rows",
    ),
    "test lacks": (
        with_test(z=[1, 2], label=["a", "b"]),
        "test.csv lacks the column x and has the column z too: give it the columns of .*t.csv",
    ),
    "test has more": (with_test(x=[1, 2], z=[1, 2], label=["a", "b"]), "test.csv has the column z too"),
    "test without label": (with_test(x=[1, 2]), "test.csv has no column label"),
    "test with text": (
        with_test(x=[1, "many"], label=["a", "b"]),
        "test.csv: the column x has the value 'many' in row 2, but numbers in the training rows",
    ),
    "test with infinity": (with_test(x=[1, "inf"], label=["a", "b"]), "test.csv has an infinite number in row 2"),
    "too few rows": (csv_text("x,label\n1,a\n2,b\n"), "too few for a test set"),
    "no share": (lambda folder: {"path": write_csv(folder / "t.csv", GOOD), "test_share": 0}, "test_share must lie"),
    "whole share": (
        lambda folder: {"path": write_csv(folder / "t.csv", GOOD), "test_share": 1.0},
        "test_share must lie",
    ),
    "npy of one dimension": (array(np.arange(9.0)), r"holds an array of shape \(9,\): it needs rows and at least two"),
    "npy of three": (array(np.zeros((4, 2, 2))), r"shape \(4, 2, 2\)"),
    "npy of objects": (array(np.array([[1, "a"]], dtype=object)), "Python objects, which are never loaded"),
    "npy by name": (array(np.c_[X, Y], "kind"), "--label is the number of a column, 0 to 2, got 'kind'"),
    "npy beyond": (array(np.c_[X, Y], "3"), "--label must be a number from 0 to 2, got 3"),
    "npy of fractions": (array(X + 0.5), "quantity, not a class"),
    "npy cut": (raw("t.npy", b"\x93NUMPY\x01\x00"), "t.npy cannot be read"),
    "npy empty": (raw("t.npy", b""), "t.npy is empty"),
    "npy that is a pickle": (raw("t.npy", pickle.dumps([1, 2])), "it is not an array that NumPy wrote"),
    "npz without labels": (arrays(x=X, z=Y), "no array of labels called y or labels: give --label NAME, one of x, z"),
    "npz without that": (arrays("lables", x=X, labels=Y), "called lables: did you mean labels"),
    "npz of objects": (arrays(x=X.astype(object), y=Y), "the array x of .*t.npz holds Python objects"),
    "npz of object labels": (arrays(x=X, y=np.array(["a", 1] * 10, dtype=object)), "the array y of .* Python objects"),
    "npz without inputs": (arrays(x=X[:, 0], y=Y), r"no 2-D array of inputs, only x \(20,\)"),
    "npz of pictures": (arrays(x=np.zeros((20, 4, 4)), y=Y), "for pictures use vmcr2.data.from_arrays"),
    "npz of many": (arrays(a=X, b=X, y=Y), "several 2-D arrays, a .*: call the inputs x"),
    "npz of 2-D labels": (arrays(x=X, y=np.c_[Y, Y]), r"the array y of .* has the shape \(20, 2\)"),
    "npz of other lengths": (arrays(x=X, y=Y[:9]), "20 rows in x but 9 labels in y"),
    "npz with half a split": (arrays(x_train=X, y_train=Y, x_test=X), "one of x_test and y_test alone"),
    "npz with another label": (
        arrays(x_train=X, y_train=Y, x_test=X, y_test=Y + 1),
        "the test set of .*t.npz has classes that the training rows do not have, 2",
    ),
    "npz cut": (raw("t.npz", b"PK\x03\x04abc"), "t.npz cannot be read"),
    "npz without rows": (arrays(x=X[:0], y=Y[:0]), "has no rows"),
    "parquet cut": (raw("t.parquet", b"PAR1abc"), "is not a whole parquet file"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_clear_sentence(tmp_path: Path, case: str) -> None:
    if "parquet" in case:
        pytest.importorskip("pyarrow")
    write, expected = CASES[case]
    with pytest.raises(DataError, match=expected) as caught:
        from_table(**write(tmp_path))
    said = str(caught.value)
    assert "\n" not in said
    assert not said.endswith((".", ": "))
    assert len(re.sub(r"/\S+", "", said)) < 260


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="needs pyarrow to be read: pip install pyarrow"):
        from_table(tmp_path / "t.parquet", "label")


def test_a_pickle_is_never_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "it ran",))

    (tmp_path / "t.npy").write_bytes(pickle.dumps(Trap()))
    np.savez(tmp_path / "t.npz", x=np.array([[Trap()]], dtype=object), y=np.zeros(1))
    for name in ("t.npy", "t.npz"):
        with pytest.raises(DataError):
            from_table(tmp_path / name)
    assert not (tmp_path / "it ran").exists()


def test_a_file_without_permission_to_read(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "t.csv", people())
    file.chmod(0)
    try:
        file.read_bytes()
    except PermissionError:
        with pytest.raises(DataError, match="change its permissions"):
            from_table(file, "group")
    else:
        pytest.skip("this user may read everything")
