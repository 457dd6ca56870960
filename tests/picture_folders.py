"""Small folders of pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from vmcr2.data import Split

Image = pytest.importorskip("PIL.Image")


def noise(*shape: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write_split(folder: Path, split: Split, names: tuple[str, ...]) -> None:
    """Every picture as a PNG in its class folder, numbered in the order of the split."""
    for name in names:
        (folder / name).mkdir(parents=True)
    for row, (pixels, label) in enumerate(zip(split.images.numpy(), split.labels.tolist(), strict=True)):
        array = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
        Image.fromarray(array).save(folder / names[label] / f"{row:05d}.png")


def write_classes(
    folder: Path, names: tuple[str, ...] = ("cat", "dog"), each: int = 5, size: tuple[int, int] = (8, 8), seed: int = 0
) -> Path:
    """``each`` grey PNGs of noise in every class, (height, width) in size."""
    for row, name in enumerate(names):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            Image.fromarray(noise(*size, seed=1000 * seed + 100 * row + i)).save(folder / name / f"{name}{i}.png")
    return folder
