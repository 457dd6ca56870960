"""From labels as people write them to class names and class numbers."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .._shared import listed
from ._columns import Column
from ._errors import DataError
from ._holdout import drawn_test_set

_CONTROLS = ("Cc", "Cs")  # line ends, escape sequences; halves of characters, which no encoding has
_FEW = 10  # classes of one row that a small table may have by chance


def class_texts(labels: Column, what: str) -> NDArray[Any]:
    """The class of every row as text, None where it is missing; an error for quantities. ``what`` names the column."""
    if labels.kind == "number":
        present = labels.values[~np.isnan(labels.values)]
        fractions = present[present != np.floor(present)]
        if len(fractions):
            example = f"{fractions[0]:g}"
            raise DataError(
                f"{what} has {len(np.unique(present))} different numbers with fractions such as {example}: it is a "
                "quantity, not a class; choose another column, or write ranges of it as names (low, high)"
            )
        if np.isinf(present).any():
            raise DataError(f"{what} has an infinite number: give every row a class")
    elif labels.kind == "other":
        raise DataError(f"{what} has neither text nor whole numbers: give every row one class")
    return labels.texts()


def class_names_of(texts: Iterable[str], what: str) -> tuple[str, ...]:
    """The different classes: whole numbers by size, others by alphabet. An error if they cannot be learned."""
    sizes = Counter(texts)
    rows, alone = sizes.total(), sum(size == 1 for size in sizes.values())
    if not sizes:
        raise DataError(f"{what} is empty in every row: name the column that has the classes")
    if len(sizes) == 1:
        raise DataError(f"{what} has one class, {next(iter(sizes))}, in all rows: training needs at least two classes")
    if alone > _FEW and 2 * alone > rows:
        raise DataError(
            f"{what} has {len(sizes)} different values in {rows} rows, and {alone} of them occur once: it is an id or "
            "a quantity, not a class; choose another column"
        )
    try:
        return tuple(sorted(sizes, key=int))
    except ValueError:
        return tuple(sorted(sizes))


def refuse_controls(names: Iterable[str], where: object) -> None:
    """An error for a class name that cannot be printed: control characters can rewrite what a terminal shows."""
    for name in names:
        if any(unicodedata.category(sign) in _CONTROLS for sign in name):
            raise DataError(f"{where} has a class whose name has a control character, {name[:100]!a}: rename it")


def class_numbers(texts: Sequence[str], names: Sequence[str], what: str) -> Tensor:
    """int64 (rows,): the place of each class among the names. An error for classes that the names do not have."""
    place = {name: at for at, name in enumerate(names)}
    unknown = sorted(set(texts) - place.keys())
    if unknown:
        raise DataError(
            f"{what} has classes that the training rows do not have, {listed(unknown)}: "
            f"remove these rows, or add training rows of them (known: {listed(names, 10)})"
        )
    return torch.tensor([place[text] for text in texts], dtype=torch.int64)


def held_out(labels: Tensor, num_classes: int, share: float, seed: int) -> Tensor:
    """Which rows are the test set, (rows,) bool: a share of every class; one row of each stays in training."""
    if not 0 < share < 1:
        raise DataError(f"test_share must lie between 0 and 1, got {share}: 0.2 tests on every fifth row")
    held = drawn_test_set(labels, share, num_classes, seed=seed)
    if not held.any():
        raise DataError(
            f"{len(labels)} rows of {num_classes} classes are too few for a test set: add rows of each class"
        )
    return held


def rare_notes(train: Tensor, test: Tensor, names: Sequence[str]) -> list[str]:
    """Sentences about classes with one training sample, or without a test sample."""
    in_train, in_test = (torch.bincount(labels, minlength=len(names)).tolist() for labels in (train, test))
    said = []
    alone = [name for name, size in zip(names, in_train, strict=True) if size == 1]
    if alone:
        said.append(f"Only one training row has the class {listed(alone)}: add rows, or merge classes.")
    untested = [name for name, size in zip(names, in_test, strict=True) if not size]
    if untested:
        said.append(f"No test row has the class {listed(untested)}: its accuracy cannot be measured.")
    return said
