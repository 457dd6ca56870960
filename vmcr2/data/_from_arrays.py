"""Arrays, tensors and lists as a data set: pictures or rows of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._shared import listed
from ._classes import class_names_of, class_numbers, class_texts, held_out, rare_notes
from ._columns import array_of, as_column, as_columns, refuse_infinite
from ._errors import DataError
from ._in_memory import MemoryReader
from ._preparation import Preparation
from ._source import Source
from ._split import Part, Split

_CHANNELS = (1, 3)


class _Given(NamedTuple):
    """Inputs as one array, uint8 (N, C, H, W) or (N, columns), and the class of each as text."""

    inputs: NDArray[Any]
    texts: list[str]


def from_arrays(
    inputs: Any,
    labels: Any,
    *,
    test: tuple[Any, Any] | None = None,
    val: tuple[Any, Any] | None = None,
    test_share: float = 0.2,
    split_seed: int = 0,
    class_names: Sequence[str] | None = None,
    title: str = "given",
) -> Source:
    """Arrays, tensors or lists as a data set.

    Args:
        inputs: pictures, uint8 (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels; or rows of numbers
            (N, columns), which are standardised with the mean and the spread of the training rows.
        labels: N whole numbers or texts.
        test: inputs and labels of the test set. None takes a share of the samples of every class.
        val: inputs and labels of a validation set, if there is one.
        test_share: the share for the test set.
        split_seed: another number chooses other samples.
        class_names: names of the classes 0, 1, … None takes the labels themselves.
        title: what people call the data.

    >>> import numpy as np
    >>> pictures = np.zeros((10, 8, 8), dtype=np.uint8)
    >>> source = from_arrays(pictures, ["cat", "dog"] * 5)
    >>> source.class_names, source.image_shape, len(source.train().labels), len(source.test().labels)
    (('cat', 'dog'), (1, 8, 8), 8, 2)
    """
    given = {"train": _given(inputs, labels, "training")}
    given |= {
        part: _given(*_pair(pair, part), part) for part, pair in (("val", val), ("test", test)) if pair is not None
    }
    _refuse_other_shapes(given)
    names = _names(given["train"].texts, class_names)
    numbers = {part: _numbers(own, names, class_names is not None, part) for part, own in given.items()}
    _refuse_empty_classes(numbers["train"], names)
    parts = {part: (own.inputs, numbers[part]) for part, own in given.items()}
    notes: list[str] = []
    if test is None:
        x, y = parts["train"]
        held = held_out(y, len(names), test_share, split_seed)
        parts |= {"train": (x[~held.numpy()], y[~held]), "test": (x[held.numpy()], y[held])}
        notes.append(
            f"{int((~held).sum())} samples to train and {int(held.sum())} to test, drawn from each class "
            f"(test_share {test_share:g}, split_seed {split_seed})."
        )
    notes += rare_notes(parts["train"][1], parts["test"][1], names)
    return _source(parts, names, notes, title)


def _source(
    parts: Mapping[str, tuple[NDArray[Any], Tensor]], names: tuple[str, ...], notes: list[str], title: str
) -> Source:
    splits: dict[Part, Split] = {}
    made = None
    if parts["train"][0].ndim == 2:
        made = Preparation.fit(parts["train"][0])
        notes += made.notes
    for part in ("train", "val", "test"):
        if part in parts:
            x, y = parts[part]
            # a copy: the person's array may change later
            splits[part] = Split(torch.from_numpy(np.array(x) if made is None else made.transform(x)), y)
    name = "given-pictures" if made is None else "given-rows"
    reader = MemoryReader(splits, names, tuple(splits["train"].inputs.shape[1:]))
    return Source(
        name,
        None,
        names,
        reader,
        title=title,
        settings={"data": name},
        notes=tuple(notes),
        preparation=None if made is None else made.to_json_dict(),
    )


def _given(inputs: Any, labels: Any, part: str) -> _Given:
    x = _inputs(inputs, part)
    # a list stays one: NumPy would turn [None, 1] into objects and [1, "a"] into texts
    y = list(labels) if isinstance(labels, list | tuple) else array_of(labels)
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if isinstance(y, np.ndarray) and y.ndim != 1:
        raise DataError(f"the {part} labels have the shape {y.shape}: give one dimension, one class for each sample")
    if len(x) != len(y):
        raise DataError(f"the {part} set has {len(x)} samples but {len(y)} labels: give one label for each sample")
    if not len(x):
        raise DataError(f"the {part} set is empty: give samples")
    texts = class_texts(as_column(y), f"the list of {part} labels")
    absent = [at for at, text in enumerate(texts) if text is None]
    if absent:
        raise DataError(f"the {part} labels lack {len(absent)} values, the first at place {absent[0]}: leave these out")
    return _Given(x, texts.tolist())


def _inputs(inputs: Any, part: str) -> NDArray[Any]:
    try:
        x = array_of(inputs)
    except ValueError:
        raise DataError(f"the {part} inputs have rows of different lengths: give them one shape") from None
    if x.ndim not in (2, 3, 4):
        raise DataError(
            f"the {part} inputs have the shape {x.shape}: give rows (N, columns), or pictures (N, height, width), "
            "(N, height, width, channels) or (N, channels, height, width)"
        )
    if x.ndim == 2:
        if x.dtype.kind not in "biuf":
            raise DataError(f"the {part} rows are not numbers ({x.dtype}): use vmcr2.data.from_table for texts")
        refuse_infinite(as_columns(x), f"the {part} rows")
        return x
    if x.dtype != np.uint8:
        times = "multiply by 255 and " if x.dtype.kind == "f" else ""
        raise DataError(
            f"the {part} pictures are {x.dtype}, but pictures are uint8, 0 to 255: {times}convert them to uint8"
        )
    return channels_first(x, by_default=isinstance(inputs, Tensor), part=part)


def channels_first(x: NDArray[Any], *, by_default: bool, part: str) -> NDArray[Any]:
    """(N, C, H, W). Where both ends may be channels, a tensor has them first, as torch does, and an array last."""
    if x.ndim == 3:
        return x[:, None]
    first, last = x.shape[1] in _CHANNELS, x.shape[3] in _CHANNELS
    if first and (by_default or not last):
        return x
    if last:
        return x.transpose(0, 3, 1, 2)
    raise DataError(
        f"the {part} pictures have the shape {x.shape}: they need 1 or 3 channels, "
        "as (N, height, width, channels) or (N, channels, height, width)"
    )


def _pair(pair: Any, part: str) -> tuple[Any, Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(f"{part} must be a pair of inputs and labels: {part}=(inputs, labels)")
    return pair[0], pair[1]


def _refuse_other_shapes(given: Mapping[str, _Given]) -> None:
    shape = given["train"].inputs.shape[1:]
    for part, own in given.items():
        if own.inputs.shape[1:] != shape:
            raise DataError(
                f"the {part} samples have the shape {own.inputs.shape[1:]}, the training samples {shape}: "
                "give all samples one shape"
            )


def _names(texts: Sequence[str], class_names: Sequence[str] | None) -> tuple[str, ...]:
    found = class_names_of(texts, "the list of training labels")
    if class_names is None:
        return found
    names = tuple(map(str, class_names))
    if len(set(names)) != len(names):
        raise DataError("class_names has a name twice: give every class its own")
    return names


def _numbers(own: _Given, names: Sequence[str], named: bool, part: str) -> Tensor:
    """The class of each sample. Beside given names, whole numbers are places among them."""
    what = f"the list of {part if part != 'train' else 'training'} labels"
    try:
        places = [int(text) for text in own.texts] if named else []
    except ValueError:
        places = []
    if not places:
        unknown = sorted(set(own.texts) - set(names)) if named else []
        if unknown:
            raise DataError(f"{what} has {listed(unknown)}, which class_names lacks: add it, or correct the labels")
        return class_numbers(own.texts, names, what)
    wrong = [place for place in places if not 0 <= place < len(names)]
    if wrong:
        raise DataError(
            f"{what} has the class {wrong[0]}, but class_names has {len(names)} names: use 0 to {len(names) - 1}"
        )
    return torch.tensor(places, dtype=torch.int64)


def _refuse_empty_classes(labels: Tensor, names: Sequence[str]) -> None:
    empty = [names[at] for at, size in enumerate(torch.bincount(labels, minlength=len(names)).tolist()) if not size]
    if empty:
        raise DataError(f"no training sample has the class {empty[0]}: leave it out of class_names, or add samples")
