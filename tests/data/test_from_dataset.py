"""Datasets of torch and Hugging Face, and whatever has a length and items."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from picture_folders import Image, noise
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from vmcr2.data import DataError, from_dataset, open_data


def test_digits_as_a_tensor_dataset_are_the_built_in_digits() -> None:
    digits = open_data("digits")
    pairs = [TensorDataset(split.images.double() / 255, split.labels) for split in (digits.train(), digits.test())]
    source = from_dataset(*pairs)
    assert torch.equal(source.train().images, digits.train().images)
    assert torch.equal(source.test().labels, digits.test().labels)
    assert source.checksum == digits.checksum
    assert source.class_names == digits.class_names
    assert (source.name, source.path, source.title) == ("given-pictures", None, "given")
    assert (source.settings, source.notes, source.has_val) == ({"data": "given-pictures"}, (), False)


GREY, COLOUR = noise(5, 7), noise(5, 7, 3)
FORMS: dict[str, tuple[Any, np.ndarray]] = {
    "PIL, grey": (Image.fromarray(GREY), GREY[None]),
    "PIL, colour": (Image.fromarray(COLOUR), COLOUR.transpose(2, 0, 1)),
    "array (H, W)": (GREY, GREY[None]),
    "array (H, W, 1)": (GREY[:, :, None], GREY[None]),
    "array (H, W, 3)": (COLOUR, COLOUR.transpose(2, 0, 1)),
    "array of floats": (COLOUR.astype(np.float32) / 255, COLOUR.transpose(2, 0, 1)),
    "array (H, W, 4), opaque": (np.dstack([COLOUR, np.full((5, 7), 255, np.uint8)]), COLOUR.transpose(2, 0, 1)),
    "tensor (1, H, W)": (torch.from_numpy(GREY)[None], GREY[None]),
    "tensor (3, H, W)": (torch.from_numpy(COLOUR).permute(2, 0, 1), COLOUR.transpose(2, 0, 1)),
    "tensor of doubles": (torch.from_numpy(GREY)[None].double().div(255), GREY[None]),
    "tensor (H, W)": (torch.from_numpy(GREY), GREY[None]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("item", ["pair", "image", "img"])
def test_forms_of_pictures(form: str, item: str) -> None:
    picture, pixels = FORMS[form]
    items = [(picture, label) if item == "pair" else {item: picture, "label": label, "id": 3} for label in (0, 1, 0, 1)]
    source = from_dataset(items, items)
    assert source.sample_shape == pixels.shape
    assert np.array_equal(source.train().images[0], pixels)
    assert source.train().labels.tolist() == [0, 1, 0, 1]


def test_other_sizes_become_squares() -> None:
    items = [(noise(20, 30, seed=row) if row % 3 else noise(26, 22), row % 2) for row in range(30)]
    source = from_dataset(items)
    assert source.sample_shape == (1, 20, 20)
    assert from_dataset(items, image_size=6, channels=3).sample_shape == (3, 6, 6)
    late = [*[(noise(20, 30), row % 2) for row in range(200)], (noise(8, 9), 1)]  # after the first look
    assert from_dataset(late).sample_shape == (1, 20, 20)
    colour = [*[(noise(6, 6), row % 2) for row in range(200)], (noise(6, 6, 3), 1)]
    assert from_dataset(colour).sample_shape == (3, 6, 6)


def test_pictures_of_one_size_are_read_once() -> None:
    class Counting(Dataset):
        reads = 0

        def __len__(self) -> int:
            return 500

        def __getitem__(self, row: int) -> tuple[Any, int]:
            self.reads += 1
            return noise(4, 4, seed=row), row % 5

    items = Counting()
    from_dataset(items)
    assert items.reads < 500 + 100


def test_a_share_of_every_class_is_tested_on() -> None:
    items = [(noise(4, 4, seed=row), row % 2) for row in range(40)]
    source = from_dataset(items, test_share=0.25, split_seed=3)
    assert source.train().labels.bincount().tolist() == [15, 15]
    assert source.test().labels.bincount().tolist() == [5, 5]
    rows = {bytes(pixels.numpy()) for split in (source.train(), source.test()) for pixels in split.images}
    assert rows == {noise(4, 4, seed=row).tobytes() for row in range(40)}
    assert "0.25 of every class, 10 pictures, are the test set, drawn with the seed 3." in source.notes[0]
    other = from_dataset(items, test_share=0.25, split_seed=4)
    assert not torch.equal(other.test().images, source.test().images)


def test_validation_pictures() -> None:
    parts = [[(noise(4, 4, seed=10 * part + row), row % 2) for row in range(4)] for part in range(3)]
    source = from_dataset(parts[0], parts[1], val=parts[2], title="mine")
    assert source.has_val
    assert np.array_equal(source.val().images[0, 0], noise(4, 4, seed=20))
    assert source.title == "mine"


def some(labels: list[Any]) -> list[tuple[Any, Any]]:
    return [(noise(4, 4, seed=row), label) for row, label in enumerate(labels)]


class Named(list):  # as torchvision's
    classes = ("ant", "bee", "cow")


class Featured(list):  # as Hugging Face's
    features = {"image": None, "label": SimpleNamespace(names=["ant", "bee", "cow"])}  # noqa: RUF012


@pytest.mark.parametrize(
    ("items", "given", "names", "labels"),
    [
        (some([0, 1, 2, 1]), None, ("0", "1", "2"), [0, 1, 2, 1]),
        (some([10, 2, 10, 7]), None, ("2", "7", "10"), [2, 0, 2, 1]),
        (some(["x10", "x9", "x10", "x9"]), None, ("x9", "x10"), [1, 0, 1, 0]),
        (some([np.int64(1), torch.tensor(0), np.array([1]), 0.0]), None, ("0", "1"), [1, 0, 1, 0]),
        (some([0, 1, 1, 0]), ["no", "yes"], ("no", "yes"), [0, 1, 1, 0]),
        (some(["yes", "no", "no", "yes"]), ["no", "yes"], ("no", "yes"), [1, 0, 0, 1]),
        (Named(some([0, 1, 2, 1])), None, ("ant", "bee", "cow"), [0, 1, 2, 1]),
        (Named(some([0, 1, 2, 1])), ["A", "B", "C"], ("A", "B", "C"), [0, 1, 2, 1]),
        (Featured(some([0, 1, 2, 1])), None, ("ant", "bee", "cow"), [0, 1, 2, 1]),
        (Named(some([2, 1, 2, 1])), None, ("bee", "cow"), [1, 0, 1, 0]),  # EMNIST has a class without pictures
    ],
)
def test_names_and_labels(items: Any, given: Any, names: tuple[str, ...], labels: list[int]) -> None:
    source = from_dataset(items, items, class_names=given)
    assert source.class_names == names
    assert source.train().labels.tolist() == labels
    assert any("without training pictures (1): ant" in note for note in source.notes) == (names == ("bee", "cow"))


def test_hugging_face_datasets() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["low", "high"])})
    table = {"img": [Image.fromarray(noise(6, 6, 3, seed=row)) for row in range(6)], "label": [0, 1] * 3}
    items = datasets.Dataset.from_dict(table, features=features)
    source = from_dataset(items, items)
    assert source.class_names == ("low", "high")
    assert np.array_equal(source.train().images[5], noise(6, 6, 3, seed=5).transpose(2, 0, 1))
    with pytest.raises(DataError, match=r'train is a dict of a, b, not a Dataset: give its parts, such as .*"train"'):
        from_dataset(datasets.DatasetDict({"a": items, "b": items}))
    with pytest.raises(DataError, match="without a length and numbered items"):
        from_dataset(items.to_iterable_dataset())


def test_a_subset_is_a_dataset() -> None:
    items = Subset(Named(some([0, 1, 2, 0, 1, 2])), [0, 1, 3, 4])  # type: ignore[arg-type]
    assert from_dataset(items, items).class_names == ("0", "1")


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        yield from some([0, 1])


BAD: dict[str, tuple[Any, str]] = {
    "iterable": (Stream(), "train is a Stream without a length and numbered items: give a map-style Dataset"),
    "generator": (iter(some([0, 1])), "without a length and numbered items"),
    "empty": ([], "train has no items: give"),
    "no pair": ([noise(4, 4)], "item 0 of train is a ndarray: give pairs"),
    "triples": ([(noise(4, 4), 1, 2)], "item 0 of train is a tuple: give pairs"),
    "keys": ([{"picture": 1, "label": 0}], "item 0 of train has the keys picture, label: rename"),
    "no picture": ([("a.png", 0)], "item 0 of train has a str as its picture: give"),
    "shape": ([(noise(4, 4, 7), 0)], "item 0 of train has the shape 4×4×7: give tensors"),
    "a row": ([(noise(4), 0)], "item 0 of train has the shape 4: give tensors"),
    "normalised": ([(torch.randn(1, 4, 4), 0)], "numbers outside 0..1: give floats between 0 and 1, not normalised"),
    "nan": ([(torch.full((1, 4, 4), float("nan")), 0)], "numbers outside 0..1"),
    "int64": ([(torch.zeros(1, 4, 4, dtype=torch.int64), 0)], "pixels of type int64: give uint8"),
    "label list": (some([[1, 0], [0, 1]]), "item 0 of train has the label .*: give one whole number"),
    "one-hot": (some([torch.eye(2)[0]]), "item 0 of train has a label of 2 numbers: give one"),
    "half label": (some([0.5, 1]), "item 0 of train has the label 0.5: give"),
    "no label": (some([None]), "item 0 of train has the label None: give"),
    "one class": (some([3, 3]), r"train has one class \(3\): classification needs at least two"),
    "above names": (Named(some([0, 3])), "train has the labels 3, outside the 3 class names: leave"),
    "one each": (some([0, 1, 2]), "every class has one picture, so none is left to test on: give"),
    "fractions": ([(Image.new("F", (4, 4)), 0)], r"item 0 of train cannot be used \(its pixels are fractions"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_items(kind: str) -> None:
    items, message = BAD[kind]
    with pytest.raises(DataError, match=message) as caught:
        from_dataset(items)
    assert "\n" not in str(caught.value)


def test_labels_that_training_lacks() -> None:
    with pytest.raises(DataError, match="test has the labels -1, 2, which train lacks: leave these items out"):
        from_dataset(some([0, 1]), some([0, 2, -1]))
    with pytest.raises(DataError, match="val has the labels cow, which train lacks"):
        from_dataset(some([0, 1]), some([0]), val=some(["cow"]), class_names=["ant", "bee", "cow"])
    with pytest.raises(DataError, match="two classes have the same name: give class_names that differ"):
        from_dataset(some([0, 1]), class_names=["a", "a"])
    with pytest.raises(DataError, match="channels must be 1"):
        from_dataset(some([0, 1]), channels=4)
