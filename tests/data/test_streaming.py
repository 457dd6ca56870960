"""Streamed pictures are the same as those on the device: batch for batch, and after training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from vmcr2.data import DataSettings, Pictures, Split, StreamedPictures, fits_on, open_data
from vmcr2.runs import fit, recipe

CPU = torch.device("cpu")
WAYS: list[dict[str, Any]] = [
    {"augmentation": "none", "image_size": 16},
    {"augmentation": "none", "image_size": 24},
    {"augmentation": "none", "image_size": 8},
    {"augmentation": "flip", "image_size": 8},
    {"augmentation": "crop", "image_size": 16, "crop_padding": 2},
    {"augmentation": "crop", "image_size": 16, "crop_padding": 2, "mean": (0.5,) * 3, "std": (0.2,) * 3},
    {"augmentation": "resized-crop", "image_size": 8, "least_area": 0.3},
]


def pictures(count: int = 40, size: int = 16) -> Split:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)
    return Split(pixels, torch.arange(count) % 4)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way['augmentation']}-{way['image_size']}-{len(way)}")
def test_batches_are_the_same_bit_for_bit(way: dict[str, Any]) -> None:
    split, settings = pictures(), DataSettings(**way)
    held = Pictures(split, settings, seed=3, device=CPU)
    streamed = StreamedPictures(split, settings, batch_size=10, seed=3, device=CPU)
    for epoch in range(3):
        order = torch.randperm(40, generator=torch.Generator().manual_seed(epoch))
        for index in order.split(10):
            streamed.bring(index)
            streamed.expect(order[:10])
            draw = torch.tensor(epoch)
            assert torch.equal(streamed.training_batch(index, draw), held.training_batch(index, draw))
            assert torch.equal(streamed.plain_batch(index), held.plain_batch(index))


def test_a_mapped_file_is_streamed_without_being_read_whole(tmp_path: Path) -> None:
    split, settings = pictures(), DataSettings(augmentation="none", image_size=16)
    save_file({"images": split.images}, tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", framework="pt") as file:
        mapped = Split(file.get_tensor("images"), split.labels)
        streamed = StreamedPictures(mapped, settings, batch_size=4, seed=0, device=CPU)
        assert streamed.images.data_ptr() == mapped.images.data_ptr(), "the images must stay in the file"
        index = torch.tensor([7, 3, 39, 0])
        streamed.bring(index)
        assert torch.equal(streamed.training_batch(index, torch.tensor(0)) * 255, split.images[index].float())


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_a_streamed_run_has_the_same_weights(tmp_path: Path, average: float) -> None:
    folders = []
    for stream in ("no", "yes"):
        config = recipe("digits", epochs=3, hidden=(32,), dim=24, device="cpu", average=average, stream=stream)
        folders.append(fit(config, out=tmp_path / f"{stream}{average}").folder)
    one, two = (load_file(folder / "model.safetensors") for folder in folders)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_cpu_takes_any_pictures_as_they_are() -> None:
    assert fits_on(CPU, open_data("digits").train().images)


@pytest.mark.parametrize("augmentation", ["none", "flip"])
def test_resizing_once_gives_the_same_pictures(augmentation: Any) -> None:
    """Those that every step would make smaller in the same way are made smaller once, and not rounded."""
    split = pictures(size=24)
    settings = DataSettings(augmentation=augmentation, image_size=12)
    once = Pictures(split, settings, seed=0, device=CPU)
    never = StreamedPictures(split, settings, batch_size=40, seed=0, device=CPU)
    assert once.images.shape[2:] == (12, 12)
    index, draw = torch.arange(40), torch.tensor(2)
    never.bring(index)
    assert torch.equal(once.training_batch(index, draw), never.training_batch(index, draw))
    assert torch.equal(once.plain_batch(index), never.plain_batch(index))


def test_pictures_that_would_need_more_memory_are_not_resized_once() -> None:
    split = pictures(size=16)
    kept = Pictures(split, DataSettings(augmentation="none", image_size=12), seed=0, device=CPU)
    assert kept.images.dtype == torch.uint8
