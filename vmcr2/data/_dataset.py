"""Makes a data set of a torch or Hugging Face Dataset: items with a picture and a label."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ._errors import DataError
from ._holdout import drawn_test_set
from ._in_memory import MemoryReader
from ._natural import natural
from ._pixels import as_bytes
from ._source import Source
from ._split import Part, Split
from ._survey import Fit, Plan, Survey, check_options
from ._walk import shown

if TYPE_CHECKING:
    from PIL.Image import Image

_PROBE = 64
IMAGE, _LABEL = ("image", "img"), ("label", "labels", "fine_label")


def from_dataset(
    train: Any,
    test: Any = None,
    *,
    val: Any = None,
    image_size: int | None = None,
    channels: int | None = None,
    fit: Fit = "crop",
    test_share: float = 0.2,
    split_seed: int = 0,
    class_names: Sequence[str] | None = None,
    title: str = "given",
) -> Source:
    """Pictures from Datasets of torch, torchvision or Hugging Face, or anything with ``len`` and ``[]``.

    An item is a pair (picture, label), or a dict with "image" or "img", and "label". A picture is a PIL image, a tensor
    (C, H, W), or an array (H, W) or (H, W, C); tensors and arrays are uint8, or floats between 0 and 1. All pictures
    are read now and kept in memory.

    Args:
        train: the training items.
        test: the test items; by default a share of every class is set aside.
        val: validation items, if there are any.
        image_size: as in :func:`from_folder`, also ``channels``, ``fit``, ``test_share`` and ``split_seed``.
        class_names: one for each label 0, 1, …; by default ``train.classes``, ``train.features["label"].names``, or
            the sorted labels.
        title: what to call it.

    >>> items = [(torch.full((1, 4, 4), number / 20), number % 2) for number in range(20)]
    >>> source = from_dataset(items, class_names=["even", "odd"])
    >>> source.train().images.shape, sorted(source.test().labels.tolist())
    (torch.Size([16, 1, 4, 4]), [0, 0, 1, 1])
    """
    check_options(image_size, channels, fit, test_share)
    given: dict[Part, Any] = {"train": train, "val": val, "test": test}
    parts = {part: _Items(part, items) for part, items in given.items() if items is not None}
    plan, pictures = _read(parts, image_size, channels, fit)
    named = list(class_names) if class_names is not None else parts["train"].class_names()
    names, labels, unused = _labelled({part: items.labels for part, items in parts.items()}, named)
    splits = {part: Split(pictures[part], labels[part]) for part in parts}
    notes = [f"Left out classes without training pictures ({len(unused)}): {shown(unused)}."] if unused else []
    if "test" not in splits:
        splits = {**splits, **_divided(splits["train"], len(names), test_share, split_seed)}
        count = len(splits["test"].labels)
        notes.append(
            f"No test set was given: {test_share:g} of every class, {count} pictures, are the test set, drawn with the "
            f"seed {split_seed}."
        )
    reader = MemoryReader(splits, names, plan.shape)
    settings = {"data": "given-pictures"}
    return Source("given-pictures", None, names, reader, title=title, settings=settings, notes=tuple(notes))


class _Items:
    """A Dataset whose items may have many forms."""

    def __init__(self, part: Part, items: Any) -> None:
        if isinstance(items, Mapping):
            raise DataError(
                f"{part} is a dict of {', '.join(map(str, items))}, not a Dataset: give its parts, such as "
                'from_dataset(data["train"], data["test"])'
            )
        iterable_only = isinstance(items, torch.utils.data.IterableDataset)
        if iterable_only or not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            raise DataError(
                f"{part} is a {type(items).__name__} without a length and numbered items: give a map-style Dataset, "
                "or list(dataset) if it fits into memory"
            )
        self.part = part
        self.items = items
        self.labels: list[Hashable] = []
        if len(items) == 0:
            raise DataError(f"{part} has no items: give a Dataset with at least one picture of every class")

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> tuple[Image, Hashable]:
        item = self.items[row]
        where = f"item {row} of {self.part}"
        if isinstance(item, Mapping):
            keys = [next((key for key in wanted if key in item), None) for wanted in (IMAGE, _LABEL)]
            if None in keys:
                raise DataError(f"{where} has the keys {', '.join(map(str, item))}: rename them to image and label")
            picture, label = item[keys[0]], item[keys[1]]
        elif isinstance(item, tuple | list) and len(item) == 2:
            picture, label = item
        else:
            raise DataError(f"{where} is a {type(item).__name__}: give pairs (picture, label), or dicts with both")
        return as_image(picture, where), _as_label(label, where)

    def class_names(self) -> list[str] | None:
        """As torchvision and Hugging Face keep them."""
        names = getattr(self.items, "classes", None)
        features = getattr(self.items, "features", None)
        if names is None and isinstance(features, Mapping):
            names = next((getattr(features[key], "names", None) for key in _LABEL if key in features), None)
        return list(map(str, names)) if isinstance(names, list | tuple) else None


class _OtherShapeError(Exception):
    """A picture is not what the first ones promised."""


def _read(
    parts: Mapping[Part, _Items], image_size: int | None, channels: int | None, fit: Fit
) -> tuple[Plan, dict[Part, Tensor]]:
    """Read all items once if the first ones tell the shape, and twice otherwise."""
    from ._decode import look

    train = parts["train"]
    few = Survey(look(train[row][0]) for row in range(0, len(train), max(1, len(train) // _PROBE)))
    guess = few.plan(image_size, channels, fit)
    if guess.fit == "exact" or image_size is not None:
        try:
            survey = Survey()
            pictures = {part: _tensor(items, guess, survey) for part, items in parts.items()}
        except _OtherShapeError:
            pass
        else:
            if survey.plan(image_size, channels, fit) == guess:
                return guess, pictures
    survey = Survey(look(items[row][0]) for items in parts.values() for row in range(len(items)))
    plan = survey.plan(image_size, channels, fit)
    return plan, {part: _tensor(items, plan, Survey()) for part, items in parts.items()}


def _tensor(items: _Items, plan: Plan, survey: Survey) -> Tensor:
    from ._decode import BrokenError, fitted, look, plain, planes

    images = torch.empty(len(items), *plan.shape, dtype=torch.uint8)
    rows = images.view(len(items), -1).numpy()
    items.labels = []
    for row in range(len(items)):
        picture, label = items[row]
        seen = look(picture)
        survey.add(seen)
        if plan.fit == "exact" and (seen.height, seen.width) != plan.shape[1:]:
            raise _OtherShapeError
        try:
            upright = plain(picture, plan.shape[0])
        except (BrokenError, OSError) as error:
            raise DataError(f"item {row} of {items.part} cannot be used ({error}): leave it out") from error
        rows[row] = np.frombuffer(planes(fitted(upright, plan.shape[1:], plan.fit)), np.uint8)
        items.labels.append(label)
    return images


def as_image(picture: Any, where: str) -> Image:
    """A PIL image of whatever holds a picture; ``where`` names it in errors."""
    from PIL import Image as pillow  # noqa: N813

    if isinstance(picture, pillow.Image):
        return picture
    if isinstance(picture, Tensor):
        array = picture.detach().cpu().numpy()
        array = array.transpose(1, 2, 0) if array.ndim == 3 else array
    elif isinstance(picture, np.ndarray):
        array = picture
    else:
        raise DataError(
            f"{where} has a {type(picture).__name__} as its picture: give a PIL image, a tensor or an array"
        )
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in (1, 2, 3, 4) or 0 in array.shape:
        shape = "×".join(map(str, picture.shape))
        raise DataError(f"{where} has the shape {shape}: give tensors (C, H, W) and arrays (H, W) or (H, W, C)")
    array = as_bytes(array, where)
    array = np.ascontiguousarray(array[:, :, 0] if array.shape[2] == 1 else array)
    modes = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
    mode = "L" if array.ndim == 2 else modes[array.shape[2]]
    return pillow.frombytes(mode, (array.shape[1], array.shape[0]), array.tobytes())


def _as_label(label: Any, where: str) -> Hashable:
    if isinstance(label, Tensor | np.ndarray | np.generic):
        if math.prod(label.shape) != 1:
            raise DataError(f"{where} has a label of {math.prod(label.shape)} numbers: give one whole number or a name")
        label = label.item()
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if not isinstance(label, int | str):
        raise DataError(f"{where} has the label {label!r}: give one whole number or a name")
    return label


def _labelled(
    labels: Mapping[Part, list[Hashable]], names: list[str] | None
) -> tuple[tuple[str, ...], dict[Part, Tensor], list[str]]:
    """Class names, labels as 0..k-1, and names of classes that have no training picture and are left out."""
    if names is None:
        order = sorted(set(labels["train"]), key=_by_value)
        names = [str(one) for one in order]
        numbers = {one: row for row, one in enumerate(order)}
    else:
        by_name: dict[Hashable, int] = {name: row for row, name in enumerate(names)}
        numbers = {**by_name, **{row: row for row in range(len(names))}}
    if len(set(names)) != len(names):
        raise DataError("two classes have the same name: give class_names that differ")
    found = sorted({numbers[one] for one in labels["train"] if one in numbers})
    for part, given in labels.items():
        known = numbers if part == "train" else {one: row for one, row in numbers.items() if row in found}
        unknown = sorted({str(one) for one in given if one not in known})
        if unknown:
            why = f"outside the {len(names)} class names" if part == "train" else "which train lacks"
            raise DataError(f"{part} has the labels {', '.join(unknown[:5])}, {why}: leave these items out")
    if len(found) == 1:
        raise DataError(f"train has one class ({names[found[0]]}): classification needs at least two")
    rank = {row: place for place, row in enumerate(found)}
    tensors = {part: torch.tensor([rank[numbers[one]] for one in given]) for part, given in labels.items()}
    return tuple(names[row] for row in found), tensors, [name for row, name in enumerate(names) if row not in rank]


def _by_value(label: Hashable) -> tuple[Any, ...]:
    """Numbers first, by their value; then names."""
    return (0, label) if isinstance(label, int) else (1, natural(str(label)))


def _divided(whole: Split, classes: int, test_share: float, seed: int) -> dict[Part, Split]:
    held = drawn_test_set(whole.labels, test_share, classes, seed=seed)
    if not held.any():
        raise DataError("every class has one picture, so none is left to test on: give more pictures, or test=")
    return {
        "train": Split(whole.images[~held], whole.labels[~held]),
        "test": Split(whole.images[held], whole.labels[held]),
    }
