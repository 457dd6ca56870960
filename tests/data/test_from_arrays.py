"""Arrays, tensors and lists as data sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from vmcr2.data import DataError, Preparation, from_arrays

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (30, 6, 5), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (30, 6, 5, 3), dtype=np.uint8)
ROWS = RNG.normal(3, 2, size=(30, 4))
BRIEF = torch.from_numpy(ROWS).bfloat16()  # NumPy has no such numbers
LABELS = np.arange(30) % 3


@pytest.mark.parametrize(
    ("given", "shape", "expected"),
    [
        (GREY, (1, 6, 5), GREY[:, None]),
        (GREY[..., None], (1, 6, 5), GREY[:, None]),
        (GREY[:, None], (1, 6, 5), GREY[:, None]),
        (COLOUR, (3, 6, 5), COLOUR.transpose(0, 3, 1, 2)),
        (COLOUR.transpose(0, 3, 1, 2), (3, 6, 5), COLOUR.transpose(0, 3, 1, 2)),
        (torch.from_numpy(COLOUR), (3, 6, 5), COLOUR.transpose(0, 3, 1, 2)),
        (list(COLOUR), (3, 6, 5), COLOUR.transpose(0, 3, 1, 2)),
    ],
)
def test_pictures(given: Any, shape: tuple[int, ...], expected: np.ndarray) -> None:
    source = from_arrays(given, LABELS, test=(given, LABELS), title="mine")
    assert (source.name, source.title, source.path) == ("given-pictures", "mine", None)
    assert source.settings == {"data": "given-pictures"}
    assert source.is_pictures
    assert source.image_shape == shape
    assert source.preparation is None
    assert source.train().images.dtype == torch.uint8
    assert np.array_equal(source.train().images, expected)
    assert source.train().labels.tolist() == LABELS.tolist()


def test_both_ends_may_be_channels() -> None:
    square = RNG.integers(0, 256, (30, 3, 5, 3), dtype=np.uint8)
    assert from_arrays(square, LABELS).image_shape == (3, 3, 5)  # an array has its channels last
    assert from_arrays(torch.from_numpy(square), LABELS).image_shape == (3, 5, 3)  # a tensor first


@pytest.mark.parametrize("given", [ROWS, torch.from_numpy(ROWS), ROWS.tolist(), ROWS.astype(np.float32), BRIEF])
def test_rows(given: Any) -> None:
    source = from_arrays(given, LABELS.tolist(), test=(given, LABELS))
    assert source.name == "given-rows"
    assert source.settings == {"data": "given-rows"}
    assert source.sample_shape == (4,)
    expected = (ROWS - ROWS.mean(0)) / ROWS.std(0)
    assert np.allclose(source.train().inputs, expected, atol=0.03 if given is BRIEF else 1e-5)
    made = Preparation.from_json_dict(source.preparation or {})
    assert np.array_equal(made.transform(given), source.test().inputs)


def test_whole_numbers_are_rows_too() -> None:
    source = from_arrays(RNG.integers(0, 256, (30, 9), dtype=np.uint8), LABELS)
    assert source.name == "given-rows"
    assert source.train().inputs.dtype == torch.float32


def test_the_arrays_may_change_later() -> None:
    pictures = GREY.copy()
    source = from_arrays(pictures, LABELS, test=(pictures, LABELS))
    before = source.checksum
    pictures[:] = 0
    assert from_arrays(GREY, LABELS, test=(GREY, LABELS)).checksum == before
    assert np.array_equal(source.train().images[:, 0], GREY)


def test_a_share_of_every_class_is_the_test_set() -> None:
    source = from_arrays(ROWS, LABELS)
    assert torch.bincount(source.train().labels).tolist() == [8, 8, 8]
    assert torch.bincount(source.test().labels).tolist() == [2, 2, 2]
    assert "24 samples to train and 6 to test, drawn from each class (test_share 0.2, split_seed 0)." in source.notes
    assert from_arrays(ROWS, LABELS, split_seed=1).checksum != source.checksum
    assert from_arrays(ROWS, LABELS).checksum == source.checksum


def test_the_test_rows_are_standardised_by_the_training_rows() -> None:
    plain = from_arrays(ROWS, LABELS, test=(ROWS, LABELS))
    far = from_arrays(ROWS, LABELS, test=(ROWS + 1000, LABELS))
    assert plain.preparation == far.preparation
    assert far.test().inputs.min() > 100


def test_validation_samples() -> None:
    source = from_arrays(ROWS, LABELS, val=(ROWS[:6], LABELS[:6]))
    assert source.has_val
    assert len(source.val().labels) == 6
    assert len(source.test().labels) == 6
    assert source.training_only().train().inputs.shape == (24, 4)


@pytest.mark.parametrize(
    ("labels", "names", "expected"),
    [
        (LABELS * 5, None, ("0", "5", "10")),
        (["b", "a", "c"] * 10, None, ("a", "b", "c")),
        (LABELS.astype(np.float64), None, ("0", "1", "2")),
        (torch.from_numpy(LABELS), ["x", "y", "z"], ("x", "y", "z")),
        (["z", "y", "x"] * 10, ["x", "y", "z"], ("x", "y", "z")),
        (LABELS, ["2", "1", "0"], ("2", "1", "0")),
        ([True, False] * 15, None, ("False", "True")),
        (LABELS[:, None], ["x", "y", "z"], ("x", "y", "z")),
    ],
)
def test_labels_and_names(labels: Any, names: Any, expected: tuple[str, ...]) -> None:
    source = from_arrays(ROWS, labels, class_names=names, test=(ROWS, labels))
    assert source.class_names == expected
    found = [expected[at] for at in source.train().labels.tolist()]
    if names and not isinstance(labels, list):
        assert found == [names[at] for at in LABELS.tolist()]  # whole numbers are places among the names
    else:
        assert found == [str(int(v)) if isinstance(v, float) else str(v) for v in np.asarray(labels).tolist()]


def test_labels_of_bytes() -> None:
    assert from_arrays(ROWS, np.array([b"cat", b"dog", b"eel"] * 10)).class_names == ("cat", "dog", "eel")


def test_gaps_in_rows_are_filled_and_said() -> None:
    gaps = ROWS.copy()
    gaps[0, 2] = gaps[1, 2] = np.nan
    source = from_arrays(gaps, LABELS, test=(gaps, LABELS))
    median = np.nanmedian(gaps[:, 2])
    filled = np.where(np.isnan(gaps), median, gaps)
    assert np.allclose(source.train().inputs, (filled - filled.mean(0)) / filled.std(0), atol=1e-5)
    assert "Filled 2 missing training values with the column's median: 2 (2)." in source.notes


INFINITE = ROWS.copy()
INFINITE[4, 1] = np.inf
BAD: dict[str, tuple[tuple[Any, Any], dict[str, Any], str]] = {
    "other lengths": ((ROWS, LABELS[:9]), {}, "the training set has 30 samples but 9 labels"),
    "no samples": ((ROWS[:0], []), {}, "the training set is empty"),
    "float pictures": ((GREY / 255, LABELS), {}, "are float64, .* multiply by 255 and convert them to uint8"),
    "int pictures": ((GREY.astype(int), LABELS), {}, "are int64, but pictures are uint8, 0 to 255: convert them"),
    "two channels": ((COLOUR[..., :2], LABELS), {}, r"shape \(30, 6, 5, 2\): they need 1 or 3 channels"),
    "one dimension": ((ROWS[:, 0], LABELS), {}, r"shape \(30,\): give rows \(N, columns\), or pictures"),
    "ragged": (([[1.0, 2.0], [3.0]], [0, 1]), {}, "rows of different lengths"),
    "text rows": ((np.array([["a"]] * 30), LABELS), {}, "are not numbers .*: use vmcr2.data.from_table"),
    "infinite": ((INFINITE, LABELS), {}, "column 1 of the training rows has an infinite number in row 5"),
    "one class": ((ROWS, [1] * 30), {}, "the list of training labels has one class, 1"),
    "float targets": ((ROWS, ROWS[:, 0]), {}, "30 different numbers with fractions"),
    "gaps in labels": ((ROWS, [None, *LABELS[1:]]), {}, "lack 1 values, the first at place 0"),
    "labels in columns": ((ROWS, np.eye(3)[LABELS]), {}, r"labels have the shape \(30, 3\): give one dimension"),
    "other test columns": ((ROWS, LABELS), {"test": (ROWS[:, :3], LABELS)}, r"test samples have the shape \(3,\)"),
    "test of pictures": ((ROWS, LABELS), {"test": (GREY, LABELS)}, "give all samples one shape"),
    "other test classes": (
        (ROWS, LABELS),
        {"test": (ROWS, LABELS + 1)},
        "the training rows do not have, 3",
    ),
    "other val classes": ((ROWS, LABELS), {"val": (ROWS, LABELS + 1)}, "the list of val labels has classes"),
    "test alone": ((ROWS, LABELS), {"test": ROWS}, r"test must be a pair of inputs and labels"),
    "few names": ((ROWS, LABELS), {"class_names": ["a", "b"]}, "has the class 2, but class_names has 2 names"),
    "many names": ((ROWS, LABELS), {"class_names": [*"abcd"]}, "no training sample has the class d"),
    "names twice": ((ROWS, LABELS), {"class_names": [*"aab"]}, "class_names has a name twice"),
    "other names": ((ROWS, ["x", "y", "z"] * 10), {"class_names": [*"xyw"]}, "has z, which class_names lacks"),
    "constant rows": ((np.ones((30, 2)), LABELS), {}, "no column to learn from"),
    "no share": ((ROWS, LABELS), {"test_share": 1.5}, "test_share must lie between 0 and 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_one_clear_sentence(case: str) -> None:
    arguments, options, expected = BAD[case]
    with pytest.raises(DataError, match=expected) as caught:
        from_arrays(*arguments, **options)
    assert "\n" not in str(caught.value)
