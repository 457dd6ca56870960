"""Pictures that stream to a GPU: the same batches, the same captured steps, no batch mixed with the next."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpu_training import trainer

from vmcr2.data import DataSettings, Pictures, Split, StreamedPictures, fits_on
from vmcr2.runs import Trainer
from vmcr2.training import Loop

pytestmark = pytest.mark.gpu

WAYS: list[dict[str, Any]] = [
    {"augmentation": "none", "image_size": 32},
    {"augmentation": "flip", "image_size": 16},
    {"augmentation": "crop", "image_size": 32, "crop_padding": 4},
    {"augmentation": "resized-crop", "image_size": 16},
]


def pictures(count: int = 4000) -> Split:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return Split(pixels, torch.arange(count) % 10)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way["augmentation"])
def test_batches_are_the_same_also_when_the_device_is_behind(way: dict[str, Any]) -> None:
    """Every batch is expected while the one before is still to be computed, as in the loop."""
    cuda, split, settings = torch.device("cuda"), pictures(), DataSettings(**way)
    held = Pictures(split, settings, seed=3, device=cuda)
    streamed = StreamedPictures(split, settings, batch_size=500, seed=3, device=cuda)
    ballast = torch.rand(3000, 3000, device=cuda)
    for epoch in range(3):
        batches = torch.randperm(4000, generator=torch.Generator().manual_seed(epoch)).split(500)
        draw = torch.tensor(epoch, device=cuda)
        pairs = []
        for number, index in enumerate(batches):
            streamed.bring(index)
            for _ in range(20):
                ballast = (ballast @ ballast).clamp(0, 1)
            pairs.append((streamed.training_batch(index.to(cuda), draw), held.training_batch(index.to(cuda), draw)))
            if number + 1 < len(batches):
                streamed.expect(batches[number + 1])
        assert all(torch.equal(one, two) for one, two in pairs)


def loop_of(made: Trainer) -> Loop:
    return made.loop(images=0, say=lambda text: None)


@pytest.mark.parametrize("objective", ["ce", "vmcr2"])
@pytest.mark.usefixtures("deterministic")
def test_a_captured_run_streams_to_the_same_weights(objective: str) -> None:
    made = [trainer(objective, engine="captured", stream=stream) for stream in ("no", "yes")]
    loops = [loop_of(one) for one in made]
    for loop in loops:
        loop.run(0)
        assert loop.engine.captured
    for one, two in zip(made[0].network.parameters(), made[1].network.parameters(), strict=True):
        assert torch.allclose(one, two, rtol=1e-4, atol=1e-5)
    assert isinstance(made[1].step.samples, StreamedPictures)


def test_what_does_not_fit_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(100).images
    assert fits_on(torch.device("cuda"), images)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (images.numel(), images.numel()))
    assert not fits_on(torch.device("cuda"), images)
