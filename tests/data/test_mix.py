"""Mixed pictures: shares and memberships that agree with the pixels, however a batch is cut."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from seeds import SEED

from vmcr2.data import DataError, DataSettings, Pictures, Split, StreamedPictures
from vmcr2.data._mix import decide_mix, mix_pictures, mixed_memberships

CPU = torch.device("cpu")
KINDS: list[Any] = ["mixup", "cutmix"]
DRAW = torch.tensor(2)


def pictures(count: int = 24, size: int = 12) -> Split:
    pixels = torch.randint(0, 256, (count, 3, size, size), generator=torch.Generator().manual_seed(SEED))
    return Split(pixels.to(torch.uint8), torch.arange(count) % 5)


def held(kind: str, **settings: Any) -> Pictures:
    way: dict[str, Any] = {"augmentation": "crop", "image_size": 12, "crop_padding": 2, "mix": kind}
    return Pictures(pictures(), DataSettings(**way | settings), seed=SEED, device=CPU)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [8, 31, 32])
def test_a_picture_keeps_as_many_pixels_as_its_share_says(kind: Any, size: int) -> None:
    mix = decide_mix(torch.arange(500), DRAW, seed=SEED, size=size, kind=kind)
    own, other = torch.ones(500, 1, size, size), torch.zeros(500, 1, size, size)
    found = mix_pictures(own, other, mix, kind)
    assert torch.allclose(found.mean((1, 2, 3)), mix.share, atol=1e-5)
    assert mix.share.min() >= 0.5
    assert mix.share.max() <= 1
    assert 0.7 < mix.share.mean() < 0.8, "uniform between a half and one"
    if kind == "cutmix":
        assert set(found.unique().tolist()) <= {0.0, 1.0}
        assert found.mean((0, 1)).min() < 0.95, "every place of the picture is cut out at times"
        assert found.mean((0, 1)).max() < 1


@pytest.mark.parametrize("kind", KINDS)
def test_decisions_depend_on_seed_epoch_and_sample_alone(kind: Any) -> None:
    def decided(numbers: torch.Tensor, draw: int = 0, seed: int = 0) -> torch.Tensor:
        return decide_mix(numbers, torch.tensor(draw), seed=seed, size=32, kind=kind).share

    every = torch.arange(100)
    assert torch.equal(decided(every)[40:50], decided(every[40:50]))
    assert not torch.equal(decided(every), decided(every, draw=1))
    assert not torch.equal(decided(every), decided(every, seed=1))


def test_memberships_are_shares_of_both_classes() -> None:
    labels, others = torch.tensor([0, 1, 2, 3]), torch.tensor([3, 1, 0, 2])
    share = torch.tensor([0.9, 0.5, 1.0, 0.6])
    found = mixed_memberships(labels, others, share, 4)
    expected = torch.tensor([[0.9, 0, 0, 0.1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0.4, 0.6]])
    assert torch.allclose(found, expected)
    assert torch.allclose(found.sum(1), torch.ones(4))


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_mixed_with_itself_moved_by_one(kind: Any) -> None:
    mixing, index = held(kind), torch.tensor([5, 3, 17, 0, 11, 8])
    alone = held("none")
    assert mixing.mixing
    assert not alone.mixing
    plain = alone.training_batch(index, DRAW)
    mix = decide_mix(index, DRAW, seed=SEED, size=12, kind=kind)
    assert torch.equal(mixing.training_batch(index, DRAW), mix_pictures(plain, plain.roll(1, 0), mix, kind))
    labels = mixing.labels[index]
    membership = mixing.memberships(index, labels, DRAW, 5)
    assert torch.equal(membership.argmax(1), labels), "the label is the class of the larger part"
    of_the_other = membership.gather(1, labels.roll(1)[:, None])[:, 0]
    assert (of_the_other >= 1 - mix.share).all()
    mixing.mixing = False
    assert torch.equal(mixing.training_batch(index, DRAW), plain)
    assert torch.equal(held(kind).plain_batch(index), alone.plain_batch(index)), "nothing is mixed to be measured"


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_a_batch_are_mixed_as_the_whole(kind: Any) -> None:
    mixing, index = held(kind), torch.tensor([5, 3, 17, 0, 11, 8])
    others = index.roll(1)
    parts = [mixing.training_batch(index[at : at + 2], DRAW, others[at : at + 2]) for at in (0, 2, 4)]
    assert torch.equal(torch.cat(parts), mixing.training_batch(index, DRAW))


@pytest.mark.parametrize("kind", KINDS)
def test_streamed_pictures_are_mixed_the_same(kind: Any) -> None:
    mixing, index = held(kind), torch.tensor([5, 3, 17, 0])
    streamed = StreamedPictures(pictures(), mixing._settings, batch_size=4, seed=SEED, device=CPU)
    streamed.bring(index)
    assert torch.equal(streamed.training_batch(index, DRAW), mixing.training_batch(index, DRAW))
    with pytest.raises(DataError, match=r"cannot be mixed by several processes.*stream=no"):
        streamed.training_batch(index, DRAW, index.roll(1))
