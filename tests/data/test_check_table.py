"""A look at a table before training."""

from __future__ import annotations

from pathlib import Path

import pytest
from table_files import people, write_csv

from vmcr2.data import DataError, Findings, check_table


def look(folder: Path, label: str | None = None, /, **columns: object) -> Findings:
    return check_table(write_csv(folder / "t.csv", columns), label)  # type: ignore[arg-type]


def test_what_it_counts(tmp_path: Path) -> None:
    columns = people()
    found = check_table(write_csv(tmp_path / "people.csv", columns), "group")
    assert found.title == "people"
    rows = dict(found.rows)
    old = columns["group"].count("old")
    assert rows["rows"] == "60 (48 to train, 12 to test)"
    assert rows["label"] == "group"
    assert rows["classes"] == f"2: old {old}, young {60 - old}"
    assert rows["columns"] == "7: 3 text, 2 numbers, 1 true or false, 1 dates"
    assert rows["columns after preparation"] == "7"
    assert rows["missing values"] == "10: age 6, colour 4"
    assert rows["constant columns"] == "1: planet"
    assert rows["id-like columns"] == "1: name"
    assert rows["other columns left out"] == "1: born (dates)"
    assert rows["rows that stand twice"] == "0"
    assert found.problems == ()


def test_it_writes_nothing(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "t.csv", people())
    before = file.read_bytes()
    check_table(file, "group")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
    assert file.read_bytes() == before


def test_rows_that_stand_twice(tmp_path: Path) -> None:
    found = look(tmp_path, x=[*range(0, 200, 5)] * 2, z=[None] * 80, label=["a", "b"] * 40)
    assert dict(found.rows)["rows that stand twice"] == "40"
    [shared] = [problem for problem in found.problems if "also stand in the training rows" in problem]
    count = int(shared.split()[0])
    assert 8 <= count <= 16  # 16 test rows, each with one copy: most copies are training rows
    assert f"{count} of 16 test rows of {tmp_path.resolve() / 't.csv'}" in shared


def test_equal_rows_of_two_classes(tmp_path: Path) -> None:
    found = look(tmp_path, x=[*range(0, 200, 5)] * 2, label=["a"] * 40 + ["b"] * 40)
    assert any(problem.startswith("40 sets of equal rows") for problem in found.problems)


def test_uneven_classes(tmp_path: Path) -> None:
    even = look(tmp_path, x=range(0, 400, 4), label=["rare"] * 10 + ["often"] * 90)
    uneven = look(tmp_path, x=range(0, 400, 4), label=["rare"] * 8 + ["often"] * 92)
    assert not any("uneven" in problem for problem in even.problems)
    assert any("often has 92 rows, rare has 8" in problem for problem in uneven.problems)


def test_labels_that_may_be_a_quantity(tmp_path: Path) -> None:
    found = look(tmp_path, "age", x=[at**2 for at in range(120)], age=[*range(60)] * 2)
    assert any("The label age has 60 different whole numbers" in problem for problem in found.problems)


def test_a_column_that_counts_the_rows(tmp_path: Path) -> None:
    found = look(tmp_path, nr=range(100), x=[(at * 37) % 101 for at in range(100)], label=["a", "b"] * 50)
    [said] = [problem for problem in found.problems if "counts the rows up" in problem]
    assert said.startswith("The column nr of")


def test_numbers_with_a_mistake(tmp_path: Path) -> None:
    values = [f"{at}.5" for at in range(100)]
    values[10:20] = ["broken"] * 10
    found = look(tmp_path, price=values, x=range(0, 300, 3), label=["a", "b"] * 50)
    assert any("The column price of" in problem and "'broken'" in problem for problem in found.problems)


def test_rare_classes_and_rows_without_a_label(tmp_path: Path) -> None:
    found = look(tmp_path, x=range(0, 100, 5), label=[None, "rare", *"ab" * 9])
    said = " ".join(found.problems)
    assert "Left out 1 of 20 rows" in said
    assert "Only one training row has the class rare" in said


def test_nothing_to_learn_from_is_a_problem_not_an_end(tmp_path: Path) -> None:
    found = look(tmp_path, x=[1] * 20, label=["a", "b"] * 10)
    assert dict(found.rows)["columns after preparation"] == "0"
    assert any("no column to learn from" in problem for problem in found.problems)


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one class"):
        look(tmp_path, x=range(20), label=["a"] * 20)
