"""Wrong training labels as a setting, and the smallest box of a resized crop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from digits_trainer import CPU, quick
from seeds import SEED

from vmcr2.data import DataSettings, Pictures, Split, _pictures, open_data, with_label_noise
from vmcr2.runs import Trainer, UserError

COUNT, CLASSES = 20_000, 10


def split() -> Split:
    return Split(torch.zeros(COUNT, 1, 1, 1, dtype=torch.uint8), torch.arange(COUNT) % CLASSES)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 1.0])
def test_a_share_is_drawn_again_from_all_classes(share: float) -> None:
    """1/k of the drawn labels stay right. Four standard deviations are 0.013."""
    clean = split()
    noisy = with_label_noise(clean, share, CLASSES, seed=SEED)
    wrong = (noisy.labels != clean.labels).double().mean().item()
    assert wrong == pytest.approx(share * (1 - 1 / CLASSES), abs=0.013)
    assert noisy.images is clean.images
    assert torch.equal(clean.labels, torch.arange(COUNT) % CLASSES)  # not changed in place
    assert noisy.labels.dtype == clean.labels.dtype
    assert 0 <= noisy.labels.min() <= noisy.labels.max() < CLASSES
    if share == 1.0:  # every class is drawn about equally often: 2000 ± 42
        assert (torch.bincount(noisy.labels, minlength=CLASSES) - COUNT / CLASSES).abs().max() < 220


def test_it_is_decided_by_the_seed() -> None:
    one, two, other = (with_label_noise(split(), 0.3, CLASSES, seed=SEED + n).labels for n in (0, 0, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_a_run_trains_on_them_and_is_measured_on_true_ones() -> None:
    source = open_data("digits")
    clean = Trainer(quick("ce", holdout=200), source, CPU)
    noisy = Trainer(quick("ce", holdout=200, label_noise=0.5), source, CPU)
    assert clean.held is not None
    assert noisy.held is not None
    assert torch.equal(noisy.held.labels, clean.held.labels)
    assert torch.equal(noisy.train_split.images, clean.train_split.images)
    wrong = (noisy.train_split.labels != clean.train_split.labels).double().mean().item()
    assert wrong == pytest.approx(0.45, abs=0.06)
    assert torch.equal(noisy.step.samples.labels, noisy.train_split.labels)
    assert torch.equal(source.test().labels, open_data("digits").test().labels)
    assert torch.equal(source.train().labels, open_data("digits").train().labels)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_between_0_and_1(share: float) -> None:
    with pytest.raises(UserError, match="label_noise must"):
        quick("ce", label_noise=share)


@pytest.mark.parametrize("least", [0.08, 0.5, 1.0])
def test_the_smallest_box_is_the_setting(least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    crop = _pictures.augment_resized_crop

    def watched(*args: Any, **options: Any) -> torch.Tensor:
        seen.append(options["scale"])
        return crop(*args, **options)

    monkeypatch.setattr(_pictures, "augment_resized_crop", watched)
    images = torch.randint(0, 256, (6, 3, 48, 48), generator=torch.Generator().manual_seed(SEED)).to(torch.uint8)
    settings = DataSettings(augmentation="resized-crop", least_area=least, image_size=32, flip=False)
    pictures = Pictures(Split(images, torch.zeros(6, dtype=torch.int64)), settings, seed=0, device=CPU)
    batch = pictures.training_batch(torch.arange(6), torch.tensor(0))
    assert seen == [(least, 1.0)]
    # a box of the whole square picture is the picture, resized
    whole = pictures.plain_batch(torch.arange(6))
    assert torch.allclose(batch, whole, atol=1e-4) == (least == 1.0)
