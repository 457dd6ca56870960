"""Reads arrays from .npy and .npz files, and never a pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._shared import did_you_mean, listed
from ._errors import DataError
from ._numpy_files import ArchiveOfArrays, is_archive, open_arrays, read_array

_INPUTS = ("x", "inputs", "features", "data", "embeddings")
_LABELS = ("y", "labels", "label")


class Labelled(NamedTuple):
    """Inputs (rows, columns) and labels (rows,)."""

    inputs: NDArray[Any]
    labels: NDArray[Any]


class ArrayFile(NamedTuple):
    """What a file of arrays holds."""

    parts: Mapping[str, Labelled]
    """by "train", "val" and "test"; "train" alone where the file has no split"""
    label: str
    """the name of the labels: an array of a .npz, the number of a column of a .npy"""
    notes: tuple[str, ...]


def read_npy(path: Path, label: str | None) -> ArrayFile:
    """One 2-D array whose column ``label`` has the classes; the last one by default."""
    array = read_array(path)
    if array.ndim != 2 or array.shape[1] < 2:
        raise DataError(
            f"{path} holds an array of shape {array.shape}: it needs rows and at least two columns, one of them with "
            "the classes; use a .npz file for inputs and labels in two arrays"
        )
    width = array.shape[1]
    try:
        at = -1 if label is None else int(label)
    except ValueError:
        raise DataError(
            f"{path} has no column names: --label is the number of a column, 0 to {width - 1}, got {label!r}"
        ) from None
    if not -width <= at < width:
        raise DataError(f"{path} has {width} columns: --label must be a number from 0 to {width - 1}, got {label}")
    at %= width
    notes = (f"The labels are the last column, {at}: choose another with --label NUMBER.",) if label is None else ()
    return ArrayFile({"train": Labelled(np.delete(array, at, axis=1), array[:, at])}, str(at), notes)


def read_npz(path: Path, label: str | None) -> ArrayFile:
    """A 2-D array and its labels, or x_train, y_train, x_test and y_test, perhaps with x_val and y_val."""
    with open_arrays(path) as archive:
        names = archive.names
        lower = {name.lower(): name for name in names}
        if "x_train" in lower and "y_train" in lower:
            return _split(path, archive, lower)
        known = [lower[name] for name in _LABELS if name in lower]
        chosen = known[0] if label is None and known else label
        if chosen not in names:
            hint = did_you_mean(str(chosen), names) or f": give --label NAME, one of {listed(names, 10) or 'none'}"
            raise DataError(f"{path} has no array of labels called {chosen or 'y or labels'}{hint}")
        inputs = _inputs(path, archive, [name for name in names if name != chosen])
        return ArrayFile({"train": _checked(path, inputs, chosen, archive)}, str(chosen), ())


def read_inputs(path: Path) -> NDArray[Any]:
    """The rows of a file without regard to labels: a .npy's 2-D array, or the inputs among a .npz's arrays."""
    if is_archive(path):
        with open_arrays(path) as archive:
            return archive.read(_inputs(path, archive, archive.names))
    found = read_array(path)
    if found.ndim != 2:
        raise DataError(f"{path} holds an array of shape {found.shape}: it needs rows × columns")
    return found


def _split(path: Path, archive: ArchiveOfArrays, lower: Mapping[str, str]) -> ArrayFile:
    parts = {}
    for part in ("train", "val", "test"):
        inputs, labels = (lower.get(f"{letter}_{part}") for letter in "xy")
        if (inputs is None) != (labels is None):
            raise DataError(f"{path} has one of x_{part} and y_{part} alone: save both arrays, or none")
        if inputs is not None and labels is not None:
            parts[part] = _checked(path, inputs, labels, archive)
    return ArrayFile(parts, lower["y_train"], ())


def _inputs(path: Path, archive: ArchiveOfArrays, names: list[str]) -> str:
    """The name of the one 2-D array, or of the one that has a usual name."""
    arrays = {name: archive.shape(name) for name in names}
    fitting = [name for name, shape in arrays.items() if len(shape) == 2]
    usual = [name for name in fitting if name.lower() in _INPUTS]
    if len(fitting) == 1 or len(usual) == 1:
        return fitting[0] if len(fitting) == 1 else usual[0]
    shapes = listed((f"{name} {shape}" for name, shape in arrays.items()), 10)
    if fitting:
        raise DataError(f"{path} has several 2-D arrays, {shapes}: call the inputs x")
    raise DataError(
        f"{path} has no 2-D array of inputs, only {shapes or 'labels'}: save rows × columns; "
        "for pictures use vmcr2.data.from_arrays in Python"
    )


def _checked(path: Path, inputs: str, labels: str, archive: ArchiveOfArrays) -> Labelled:
    x, y = archive.read(inputs), archive.read(labels)
    if x.ndim != 2:
        raise DataError(
            f"the array {inputs} of {path} has the shape {x.shape}: it needs rows × columns; "
            "for pictures use vmcr2.data.from_arrays in Python"
        )
    if y.ndim == 2 and 1 in y.shape:
        y = y.reshape(-1)
    if y.ndim != 1:
        raise DataError(
            f"the array {labels} of {path} has the shape {y.shape}: labels need one dimension, one class for each row"
        )
    if len(x) != len(y):
        raise DataError(f"{path} has {len(x)} rows in {inputs} but {len(y)} labels in {labels}: save one label per row")
    return Labelled(x, y)
