"""Tables as data sets: every format, the label, the split, the preparation, the notes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from table_files import people, write_csv

import vmcr2
from vmcr2.data import DataError, Preparation, Source, from_table

ROOT = Path(vmcr2.__file__).parent.parent
COLUMNS = ("age", "colour=blue", "colour=green", "colour=red", "colour=(missing)", "smoker", "income")


def same(one: Source, other: Source) -> None:
    assert one.checksum == other.checksum
    assert one.class_names == other.class_names
    assert one.preparation == other.preparation


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_csv(tmp_path / "people.csv", people())


def test_a_table_is_a_source(file: Path) -> None:
    source = from_table(file, "group")
    assert (source.name, source.title, source.path) == ("table", "people", file.resolve())
    assert source.class_names == ("old", "young")
    assert source.sample_shape == (7,)
    assert not source.is_pictures
    assert not source.has_val
    train, test = source.train(), source.test()
    assert (len(train.labels), len(test.labels)) == (48, 12)
    assert train.inputs.dtype == test.inputs.dtype == torch.float32
    assert train.labels.dtype == torch.int64
    assert train.inputs.shape == (48, 7)
    # standardised on the training rows: mean 0, spread 1 of the numbers
    assert train.inputs[:, [0, 6]].mean(0).abs().max() < 1e-5
    assert (train.inputs[:, 6].std(correction=0) - 1).abs() < 1e-5
    assert set(train.inputs[:, 1:6].unique().tolist()) == {0.0, 1.0}
    assert Preparation.from_json_dict(json.loads(json.dumps(source.preparation))).columns == COLUMNS


def test_rows_keep_their_labels(file: Path) -> None:
    source = from_table(file, "group")
    made = Preparation.from_json_dict(source.preparation or {})
    given = people()
    expected = {tuple(row): group for row, group in zip(made.transform(given).tolist(), given["group"], strict=True)}
    found = 0
    for split in (source.train(), source.test()):
        for row, label in zip(split.inputs.tolist(), split.labels.tolist(), strict=True):
            assert expected[tuple(row)] == source.class_names[label]
            found += 1
    assert found == 60


def test_the_test_rows_are_a_share_of_every_class(file: Path) -> None:
    source = from_table(file, "group", test_share=0.3, split_seed=4)
    sizes = torch.bincount(torch.tensor([group == "young" for group in people()["group"]], dtype=torch.int64))
    assert torch.equal(torch.bincount(source.train().labels) + torch.bincount(source.test().labels), sizes)
    assert (torch.bincount(source.test().labels) - 0.3 * sizes).abs().max() <= 1
    assert source.checksum == from_table(file, "group", test_share=0.3, split_seed=4).checksum
    assert source.checksum != from_table(file, "group", test_share=0.3, split_seed=5).checksum


def test_nothing_of_the_test_rows_enters_the_preparation(tmp_path: Path) -> None:
    """The same training rows beside other test rows: far numbers, a new colour, gaps."""
    columns = people()
    train = write_csv(tmp_path / "train.csv", columns)
    other = people(20, seed=1)
    plain = write_csv(tmp_path / "plain.csv", other)
    strange = other | {"age": [1e6] * 20, "colour": ["violet"] * 20, "planet": ["Mars", "Venus"] * 10}
    far = write_csv(tmp_path / "far.csv", strange)
    one, two = (from_table(train, "group", test=test) for test in (plain, far))
    assert one.preparation == two.preparation
    assert torch.equal(one.train().inputs, two.train().inputs)
    assert two.test().inputs[:, 1:5].abs().sum() == 0  # an unknown colour is no colour
    assert two.test().inputs[:, 0].min() > 1e4


def test_within_one_file_too(tmp_path: Path) -> None:
    """Which rows are tested depends on the labels alone: change these rows, and what was learned stays."""
    columns = people()
    columns["row"] = [str(at) for at in range(60)]
    columns["income"] = list(range(60))  # says which row is which
    source = from_table(write_csv(tmp_path / "a.csv", columns), "group")
    made = Preparation.from_json_dict(source.preparation or {})
    income = next(own for own in made.prepared if own.name == "income")
    tested = {round(value) for value in (source.test().inputs[:, -2] * income.scale + income.mean).tolist()}
    assert len(tested) == 12
    columns["age"] = [1e7 if at in tested else value for at, value in enumerate(columns["age"])]
    columns["colour"] = ["pink" if at in tested else value for at, value in enumerate(columns["colour"])]
    again = from_table(write_csv(tmp_path / "b.csv", columns), "group")
    assert again.preparation == source.preparation
    assert again.test().inputs[:, 0].min() > 1e4


def test_the_notes_say_what_was_done(file: Path) -> None:
    notes = " ".join(from_table(file, "group").notes)
    made = Preparation.from_json_dict(from_table(file, "group").preparation or {})
    gaps = {own.name: own.missing for own in made.prepared}
    assert 0 < gaps["age"] <= 6
    assert f"Filled {gaps['age']} missing training values with the column's median: age ({gaps['age']})." in notes
    assert "Text became 4 columns of 0 and 1: colour (4)." in notes
    assert f"A missing text is a value of its own: colour ({gaps['colour']})." in notes
    assert "name (text with 48 different values: an id or free text)" in notes
    assert "born (dates)" in notes
    assert "planet (constant)" in notes
    assert "48 rows to train and 12 to test, drawn from each class (test_share 0.2, split_seed 0)." in notes


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_delimiters_and_the_byte_order_mark(file: Path, tmp_path: Path, delimiter: str, encoding: str) -> None:
    other = write_csv(tmp_path / "other.csv", people(), delimiter=delimiter, encoding=encoding)
    same(from_table(file, "group"), from_table(other, "group"))


def test_signs_of_a_missing_value_and_blanks_around_cells(tmp_path: Path) -> None:
    columns = people()
    plain = write_csv(tmp_path / "plain.csv", columns)
    signs = ["?", "NA", " ", "NaN"]
    for name in ("age", "colour"):
        columns[name] = [signs[at % 4] if v is None else f" {v}  " for at, v in enumerate(columns[name])]
    same(from_table(plain, "group"), from_table(write_csv(tmp_path / "signs.csv", columns), "group"))


def test_quotes(tmp_path: Path) -> None:
    who = ['"Doe, Jane"', '"Roe ""R"" Jim"'] * 10
    columns = {"who": who, "size": range(20), "label": ['"a"'] * 10 + ["b"] * 10}
    source = from_table(write_csv(tmp_path / "t.csv", columns))
    made = Preparation.from_json_dict(source.preparation or {})
    assert made.columns == ("who=Doe, Jane", 'who=Roe "R" Jim', "size")
    assert source.class_names == ("a", "b")


def test_parquet_is_the_same_table(file: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(people()), tmp_path / "people.parquet")
    same(from_table(file, "group"), from_table(tmp_path / "people.parquet", "group"))


def test_parquet_with_dates_and_embeddings(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    import datetime

    from pyarrow import parquet

    vectors = np.random.default_rng(0).normal(size=(40, 5))
    day = datetime.date(2024, 1, 1)
    table = pyarrow.table(
        {
            "vector": list(vectors),
            "day": [day + datetime.timedelta(days=at) for at in range(40)],
            "bag": [[1] * (at % 3) for at in range(40)],
            "count": pyarrow.array([None if at == 3 else at for at in range(40)], type=pyarrow.int32()),
            "label": pyarrow.array(["cat", "dog"] * 20).dictionary_encode(),
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    source = from_table(tmp_path / "t.parquet")
    made = Preparation.from_json_dict(source.preparation or {})
    assert made.columns == (*(f"vector[{at}]" for at in range(5)), "count")
    assert made.left_out == {"day": "dates", "bag": "neither numbers nor text"}
    assert source.class_names == ("cat", "dog")


def test_neither_pandas_nor_pyarrow_is_needed_for_csv(file: Path) -> None:
    script = f"""
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("pandas", "pyarrow"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from vmcr2.data import from_table
print(from_table({str(file)!r}, "group").checksum)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == from_table(file, "group").checksum


def test_a_csv_without_names(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "sex": ["F", "M"] * 20,
        "length": rng.normal(size=40).round(3).tolist(),
        "empty": [None, *range(39)],
        "rings": [str(at % 3) for at in range(40)],
    }
    file = write_csv(tmp_path / "t.csv", columns, names=False)
    for label in ("3", "-1"):
        source = from_table(file, label)
        assert "The first line has no names: the columns are called 0 to 3." in source.notes
        assert len(source.train().labels) + len(source.test().labels) == 40  # the first line is a row
        assert source.class_names == ("0", "1", "2")
        assert source.settings["label"] == "3"
        assert Preparation.from_json_dict(source.preparation or {}).columns == ("0=F", "0=M", "1", "2")


def test_what_pandas_writes_for_an_array(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(np.c_[np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2])
    for index in (True, False):
        frame.to_csv(tmp_path / "t.csv", index=index)
        source = from_table(tmp_path / "t.csv", "2")
        assert len(source.train().labels) + len(source.test().labels) == 20
        assert Preparation.from_json_dict(source.preparation or {}).columns == ("0", "1")  # the index is left out


def test_decimal_commas_are_no_delimiters(tmp_path: Path) -> None:
    columns = {"a": [f"{at},5" for at in range(20)], "b": [f"{at},25" for at in range(20)], "c": ["x", "y"] * 10}
    with pytest.raises(DataError, match="the column 0 writes numbers with a comma, as in 0,5"):
        from_table(write_csv(tmp_path / "t.csv", columns | {"d": range(20)}, delimiter=";", names=False), "2")


@pytest.mark.parametrize("names", [["0", "1", "2"], ["country", "2019", "2020"]])
def test_names_that_are_numbers(tmp_path: Path, names: list[str]) -> None:
    columns = dict(zip(names, (["no", "yes"] * 10, range(20), range(1, 21)), strict=True))
    source = from_table(write_csv(tmp_path / "t.csv", columns), names[0])
    assert len(source.train().labels) + len(source.test().labels) == 20
    assert Preparation.from_json_dict(source.preparation or {}).columns == tuple(names[1:])


@pytest.mark.parametrize("name", ["label", "Class", "TARGET", "y", "Species"])
def test_a_usual_label_is_found_and_said(tmp_path: Path, name: str) -> None:
    file = write_csv(tmp_path / "t.csv", {"x": range(20), name: ["a", "b"] * 10})
    source = from_table(file)
    assert f"The labels are the column {name}: choose another with --label COLUMN." in source.notes
    assert source.settings["label"] == name


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([10, 9, 2, -1], ("-1", "2", "9", "10")),
        (["2.0", "1.0", "3", "1"], ("1", "2", "3")),
        (["true", "false", "true", "false"], ("False", "True")),
        (["b", "a", "10", "9"], ("10", "9", "a", "b")),
    ],
)
def test_classes_are_sorted_texts(tmp_path: Path, values: list[object], names: tuple[str, ...]) -> None:
    file = write_csv(tmp_path / "t.csv", {"x": np.arange(40) ** 2, "label": values * 10})
    assert from_table(file).class_names == names


def test_a_test_file_with_columns_in_another_order(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", people())
    other = people(20, seed=3)
    test = write_csv(tmp_path / "test.csv", other)
    mixed = list(other)
    random.Random(0).shuffle(mixed)
    shuffled = write_csv(tmp_path / "shuffled.csv", {name: other[name] for name in mixed}, delimiter=";")
    source = from_table(train, "group", test=test)
    same(source, from_table(train, "group", test=shuffled))
    assert (len(source.train().labels), len(source.test().labels)) == (60, 20)
    assert source.settings["test_path"] == str(test.resolve())
    assert "60 rows to train and 20 to test, as given." in source.notes


def test_texts_stay_texts_in_a_test_file_that_has_numbers_alone(tmp_path: Path) -> None:
    codes = ["007", "A1"] * 20
    train = write_csv(tmp_path / "train.csv", {"code": codes, "x": range(40), "label": ["a", "b"] * 20})
    test = write_csv(tmp_path / "test.csv", {"code": ["007", "007"], "x": [1, 2], "label": ["a", "b"]})
    source = from_table(train, test=test)
    assert Preparation.from_json_dict(source.preparation or {}).columns[:2] == ("code=007", "code=A1")
    assert source.test().inputs[:, :2].tolist() == [[1, 0], [1, 0]]


def test_rows_without_a_label_are_left_out_and_said(tmp_path: Path) -> None:
    labels = [None if at % 10 == 0 else "ab"[at % 2] for at in range(40)]
    source = from_table(write_csv(tmp_path / "t.csv", {"x": range(40), "label": labels}))
    assert len(source.train().labels) + len(source.test().labels) == 36
    assert any(note.startswith("Left out 4 of 40 rows of") for note in source.notes)


def test_a_class_of_one_row_is_trained_on_and_said(tmp_path: Path) -> None:
    source = from_table(write_csv(tmp_path / "t.csv", {"x": range(21), "label": [*"ab" * 10, "rare"]}))
    assert torch.bincount(source.train().labels)[2] == 1
    assert "Only one training row has the class rare: add rows, or merge classes." in source.notes
    assert "No test row has the class rare: its accuracy cannot be measured." in source.notes


def test_an_index_and_ids_are_left_out(tmp_path: Path) -> None:
    columns = {"": range(40), "customer_id": [at * 17 + 3 for at in range(40)], "x": range(40), "label": "ab" * 20}
    made = Preparation.from_json_dict(from_table(write_csv(tmp_path / "t.csv", columns)).preparation or {})
    assert made.columns == ("x",)
    assert set(made.left_out) == {"Unnamed: 0", "customer_id"}


@pytest.mark.parametrize("label", [None, "1", "-3"])
def test_npy(tmp_path: Path, label: str | None) -> None:
    array = np.random.default_rng(0).normal(size=(30, 4))
    at = 3 if label is None else 1
    array[:, at] = np.arange(30) % 3
    np.save(tmp_path / "t.npy", array)
    source = from_table(tmp_path / "t.npy", label)
    assert source.settings["label"] == str(at)
    assert source.class_names == ("0", "1", "2")
    assert source.sample_shape == (3,)
    said = any("The labels are the last column, 3" in note for note in source.notes)
    assert said == (label is None)


@pytest.mark.parametrize(
    ("inputs", "labels", "label"), [("x", "y", None), ("X", "labels", None), ("e", "kind", "kind")]
)
def test_npz(tmp_path: Path, inputs: str, labels: str, label: str | None) -> None:
    array = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    np.savez(tmp_path / "t.npz", **{inputs: array, labels: np.array(["cat", "dog"] * 15), "other": np.arange(3)})
    source = from_table(tmp_path / "t.npz", label)
    assert source.class_names == ("cat", "dog")
    assert source.settings["label"] == labels
    train = source.train()
    made = Preparation.from_json_dict(source.preparation or {})
    back = train.inputs.numpy() * [own.scale for own in made.prepared] + [own.mean for own in made.prepared]
    rows = {tuple(row.round(4)): at % 2 for at, row in enumerate(array.astype(np.float64))}
    assert [rows[tuple(row.round(4))] for row in back] == train.labels.tolist()


def test_npz_with_its_own_split(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    parts = {"train": 20, "val": 6, "test": 8}
    arrays = {f"X_{part}": rng.normal(size=(size, 3)) for part, size in parts.items()}
    arrays |= {f"y_{part}": np.arange(size) % 2 for part, size in parts.items()}
    np.savez(tmp_path / "t.npz", **arrays)
    source = from_table(tmp_path / "t.npz")
    assert source.has_val
    for part, size in parts.items():
        split = {"train": source.train, "val": source.val, "test": source.test}[part]()
        assert split.labels.tolist() == [at % 2 for at in range(size)]
    mean = arrays["X_train"].mean(0)
    assert np.allclose(source.test().inputs, (arrays["X_test"] - mean) / arrays["X_train"].std(0), atol=1e-5)
    assert from_table(tmp_path / "t.npz", source.settings["label"]).checksum == source.checksum


def test_the_settings_open_the_same_again(file: Path) -> None:
    source = from_table(file, "group", test_share=0.25, split_seed=7)
    assert source.settings == {
        "data": "table",
        "data_path": str(file.resolve()),
        "label": "group",
        "test_path": None,
        "test_share": 0.25,
        "split_seed": 7,
    }


def test_long_files_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that has text only in its last block is text from its first row on."""
    from vmcr2.data import _csv

    columns = people(90)
    columns["code"] = ["007", "08"] * 44 + ["x", "x"]
    file = write_csv(tmp_path / "t.csv", columns)
    at_once = from_table(file, "group")
    columns_of_code = [name for name in Preparation.from_json_dict(at_once.preparation or {}).columns if "code" in name]
    assert columns_of_code[:2] == ["code=007", "code=08"]
    monkeypatch.setattr(_csv, "_BLOCK", 7)
    same(at_once, from_table(file, "group"))
