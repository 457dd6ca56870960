"""Writes features into a .npz file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._rows_file import whole_file


def save_features(path: Path, parts: Iterable[tuple[Sequence[str], NDArray[Any]]]) -> None:
    """Blocks of names and features (n, d) as the arrays ``names`` and ``features`` of one file."""
    every = list(parts)
    names = np.array([name for block, _ in every for name in block], dtype=np.str_)
    features = np.concatenate([block for _, block in every]) if every else np.empty((0, 0), np.float32)
    with whole_file(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, names=names, features=features)
