"""How rows become numbers: the same as scikit-learn's own pipeline, from plain numbers and names."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from table_files import people

from vmcr2.data import DataError, Preparation

USED = ("age", "colour", "smoker", "income")


def scikit_learn(train: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    parts = ColumnTransformer(
        [("a", numbers, ["age"]), ("c", hot, ["colour"]), ("s", "passthrough", ["smoker"]), ("i", numbers, ["income"])]
    )
    return np.asarray(parts.fit(train).transform(other), dtype=np.float64)


def frame(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    made = pd.DataFrame(people(rows, seed))
    made["colour"] = made["colour"].astype(object).where(made["colour"].notna(), None)
    return made


@pytest.mark.parametrize("seed", range(3))
def test_it_is_scikit_learns_pipeline(seed: int) -> None:
    train, other = frame(80, seed), frame(30, seed + 10)
    other.loc[3, "colour"] = "violet"  # not among the training rows
    made = Preparation.fit(train[list(USED)])
    assert np.abs(made.transform(other) - scikit_learn(train, other)).max() < 1e-6
    assert made.transform(other).dtype == np.float32


def test_it_survives_json_bit_by_bit() -> None:
    made = Preparation.fit(people())
    again = Preparation.from_json_dict(json.loads(json.dumps(made.to_json_dict())))
    assert again == made
    assert again.notes == made.notes
    assert np.array_equal(again.transform(people(20, 1)), made.transform(people(20, 1)))


def test_every_form_of_rows_gives_the_same() -> None:
    made = Preparation.fit(people())
    columns = people(12, 2)
    expected = made.transform(columns)
    dicts = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    texts = [{name: "" if value is None else str(value) for name, value in row.items()} for row in dicts]
    pandas = pd.DataFrame(columns)
    categories = pandas.astype({"colour": "category", "income": "Int64", "smoker": "boolean"})
    tensors = columns | {"income": torch.tensor(columns["income"]), "smoker": np.array(columns["smoker"])}
    for form in (dicts, texts, pandas, categories, tensors):
        assert np.array_equal(made.transform(form), expected)
    for at, row in enumerate(dicts):  # one row alone is the same as among others
        assert np.array_equal(made.transform([row]), expected[at : at + 1])


def test_an_array_has_columns_by_number() -> None:
    x = np.random.default_rng(0).normal(3, 5, size=(40, 3))
    made = Preparation.fit(x)
    assert made.columns == ("0", "1", "2")
    assert np.allclose(made.transform(torch.from_numpy(x)), (x - x.mean(0)) / x.std(0), atol=1e-6)


def test_columns_in_another_order_added_and_absent() -> None:
    made = Preparation.fit(people())
    columns = people(12, 2)
    notes: list[str] = []
    mixed = dict(reversed(columns.items())) | {"height": [1] * 12}
    assert np.array_equal(made.transform(mixed, notes), made.transform(columns))
    assert notes == ["Ignored columns that training did not have: height."]
    for name in ("name", "born", "planet"):  # left out in training: not needed
        del columns[name]
    notes.clear()
    assert made.transform(columns, notes).shape == (12, len(made.columns))
    assert notes == []
    del columns["age"], columns["smoker"]
    with pytest.raises(DataError, match="the rows have no column age, smoker: give the columns that were trained on"):
        made.transform(columns)


def test_missing_values_in_rows_to_come() -> None:
    made = Preparation.fit({"x": [1.0, 2.0, 6.0, 3.0], "c": ["a", "b", "a", "b"], "t": [True, False, True, True]})
    gaps = made.transform([{"x": None, "c": None, "t": None}, {"x": math.nan, "c": "?", "t": ""}])
    filled = made.transform([{"x": 2.5, "c": "none of them", "t": True}])
    assert np.array_equal(gaps, np.repeat(filled, 2, axis=0))
    assert filled[0, 1:].tolist() == [0, 0, 1]


def test_values_that_do_not_fit() -> None:
    made = Preparation.fit({"x": [1.0, 2.0, 6.0, 3.0], "t": [True, False, True, True]})
    with pytest.raises(DataError, match="column x has the value 'many' in row 2, but numbers in the training rows"):
        made.transform([{"x": "1", "t": True}, {"x": "many", "t": True}])
    with pytest.raises(DataError, match="column t has the value '7' in row 1, but true or false"):
        made.transform([{"x": 1, "t": 7}])
    with pytest.raises(DataError, match="column x of the rows has an infinite number in row 2"):
        made.transform({"x": [1, math.inf], "t": [True, True]})
    with pytest.raises(DataError, match="the column t has 1 values but x has 2"):
        made.transform({"x": [1, 2], "t": [True]})
    with pytest.raises(DataError, match="give one row in a list"):
        made.transform([1.0, 2.0])


def test_numbers_given_for_categories_are_their_texts() -> None:
    made = Preparation.fit({"code": ["1", "2", "x", "1", "2", "x"]})
    assert made.transform({"code": [1, 2.0]}).tolist() == [[1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([None] * 60, "no values"),
        ([4.0] * 60, "constant"),
        ([4.0, None] * 30, "constant"),
        (["red"] * 60, "constant"),
        ([True] * 60, "constant"),
        ([f"2024-01-{at % 28 + 1:02}" for at in range(60)], "dates"),
        ([f"{at % 28 + 1}.1.2024 10:30" for at in range(60)], "dates"),
        (pd.date_range("2024-01-01", periods=60), "dates"),
        ([[1, 2]] * 60, "neither numbers nor text"),
        ([f"t{at}" for at in range(60)], "text with 60 different values: an id or free text"),
        ([f"t{at % 51}" for at in range(60)], "text with 51 different values: an id or free text"),
        ([*range(59), "abc"], "59 numbers, but also text such as 'abc'"),
    ],
)
def test_columns_that_are_left_out(values: object, reason: str) -> None:
    made = Preparation.fit({"x": range(60), "strange": values})
    assert made.columns == ("x",)
    assert made.left_out == {"strange": reason}
    assert f"Left out: strange ({reason})." in made.notes


def test_columns_that_are_kept() -> None:
    made = Preparation.fit(
        {
            "x": range(60),  # counts, but nobody calls it an id
            "half": [f"t{at % 30}" for at in range(60)],
            "one": ["red", None] * 30,  # present or not says something
            "codes": ["2019_01", "2019_02"] * 30,  # text, though Python reads it as numbers
        }
    )
    assert made.inputs == ("x", "half", "one", "codes")
    assert made.columns[-4:] == ("one=red", "one=(missing)", "codes=2019_01", "codes=2019_02")


def test_large_and_tiny_numbers() -> None:
    made = Preparation.fit({"large": [1e30, 2e30, 3e30], "tiny": [1e-30, 2e-30, 3e-30]})
    assert np.allclose(made.transform({"large": [3e30], "tiny": [1e-30]}), [[1.2247449, -1.2247449]])
    with pytest.raises(DataError, match="column x has numbers too large to standardise"):
        Preparation.fit({"x": [1e300, -1e300, 1e300]})
    with pytest.raises(DataError, match="column tiny has a number in row 2 that is far outside the training rows"):
        made.transform({"large": [1, 1], "tiny": [1, 1e30]})


def test_decimal_commas() -> None:
    with pytest.raises(DataError, match=r"column price writes numbers with a comma, as in 0,5: write them with"):
        Preparation.fit({"x": [1, 2, 3], "price": ["0,5", "1,5", "2"]})


def test_nothing_to_learn_from() -> None:
    with pytest.raises(DataError, match=r"no column to learn from, left out: a \(constant\), b \(no values\)"):
        Preparation.fit({"a": [1, 1], "b": [None, None]})


def test_another_format() -> None:
    with pytest.raises(DataError, match="use the version of vmcr2 that wrote it"):
        Preparation.from_json_dict({"format": "vmcr2-preparation-9"})


CELL = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(-1e6, 1e6), st.sampled_from(["a", "b", "?", "1", "x y"])
)


@given(st.lists(st.fixed_dictionaries({"p": CELL, "q": CELL, "r": st.floats(-9, 9)}), min_size=2, max_size=12))
@settings(max_examples=60, deadline=None)
def test_whatever_is_in_the_cells_rows_become_finite_numbers(rows: list[dict[str, object]]) -> None:
    try:
        made = Preparation.fit(rows)
    except DataError:
        return  # nothing to learn from
    found = made.transform(rows)
    assert found.shape == (len(rows), len(made.columns))
    assert np.isfinite(found).all()
    assert Preparation.from_json_dict(json.loads(json.dumps(made.to_json_dict()))) == made
    assert set(made.inputs) | set(made.left_out) == {"p", "q", "r"}


@pytest.mark.parametrize("rows", [[{"code": "007"}], {"code": ["007"]}, {"code": np.array(["007"])}])
def test_a_category_that_looks_like_a_number_stays_a_text(rows: Any) -> None:
    """Alone, without another row that shows it to be a text."""
    made = Preparation.fit({"code": ["007", "A1", "12", "007", "A1", "12"]})
    assert made.columns == ("code=007", "code=12", "code=A1")
    assert made.transform(rows).tolist() == [[1, 0, 0]]
    assert made.transform([{"code": 12}]).tolist() == [[0, 1, 0]]
    assert made.transform([{"code": 12.0}, {"code": None}]).tolist() == [[0, 1, 0], [0, 0, 0]]
