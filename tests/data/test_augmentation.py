"""Augmentation: the distributions of the appendix, each image's decisions its own, each pixel where it should be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from seeds import SEED
from torch import Tensor
from torch.nn.functional import interpolate

from vmcr2.data import DataError, augment_crop, augment_resized_crop, flip_only, normalize, plain
from vmcr2.data._augment import decide_crop, decide_resized_crop
from vmcr2.data._keys import below, mix, sample_keys, unit, words

FIRST = torch.tensor(0)


def random_images(count: int, *shape: int) -> Tensor:
    # from 1: black is padding and nothing else
    return torch.randint(1, 256, (count, *shape), generator=torch.Generator().manual_seed(SEED + 5)).to(torch.uint8)


def chi_square(cells: Tensor, count: int) -> float:
    """Standard deviations between the statistic of uniform cells and its mean."""
    observed = torch.bincount(cells, minlength=count).double()
    assert len(observed) == count
    expected = observed.sum() / count
    assert expected > 50
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float((statistic - (count - 1)) / (2 * (count - 1)) ** 0.5)


def assert_uniform(cells: Tensor, count: int) -> None:
    """The largest of 630 statistics over 30 seeds is 4.5; a coin of 0.52 instead of 0.5 gives 16 in 15,000 throws."""
    assert abs(chi_square(cells, count)) < 12


# --- the hash ---------------------------------------------------------------------------------------------------------


def splitmix(state: int) -> int:
    """Plain Python, from the authors' C code: the output for a state that has been advanced."""
    z = state % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_the_hash_is_splitmix64() -> None:
    golden = 0x9E3779B97F4A7C15
    # the published first outputs of the generator seeded with 1234567
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    states = [(1234567 + (i + 1) * golden) % 2**64 for i in range(5)]
    signed = torch.tensor([s - 2**64 if s >= 2**63 else s for s in states])
    assert [value % 2**64 for value in mix(signed).tolist()] == published
    assert [splitmix(s) for s in states] == published
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randint(-(2**63), 2**63 - 1, (1000,), generator=generator)
    assert [value % 2**64 for value in mix(x).tolist()] == [splitmix(v) for v in x.tolist()]


def test_words_are_uniform_in_every_direction() -> None:
    """Over samples, over draws, over seeds, over the words of one sample, and for pairs of neighbours."""
    many = torch.arange(20_000)
    over_samples = words(sample_keys(many, FIRST, SEED), 0, 1)[:, 0]
    over_draws = words(sample_keys(torch.tensor(7), many, SEED)[:, None].flatten(), 0, 1)[:, 0]
    over_seeds = torch.cat(
        [words(sample_keys(torch.tensor([7]), FIRST, seed), 0, 1)[:, 0] for seed in range(SEED, SEED + 2000)]
    )
    over_words = words(sample_keys(torch.tensor([7]), FIRST, SEED), 0, 20_000)[0]
    for drawn in (over_samples, over_draws, over_seeds, over_words):
        assert_uniform(below(drawn, 10), 10)
        pairs = below(drawn[:-1], 4) * 4 + below(drawn[1:], 4)
        assert_uniform(pairs, 16)
        assert len(drawn.unique()) == len(drawn)
        u = unit(drawn)
        assert 0 <= u.min() < 0.01
        assert 0.99 < u.max() < 1
        assert abs(float(u.mean()) - 0.5) < 5 * (12 * len(u)) ** -0.5


def test_large_seeds_and_draws_do_not_collide() -> None:
    index = torch.arange(50)
    keys = [sample_keys(index, torch.tensor(d), s) for d in (0, 1, 2**40) for s in (0, 1, -1, 2**63, 2**64 - 2)]
    assert len(torch.cat(keys).unique()) == 50 * 15


# --- RandomCrop and flip ----------------------------------------------------------------------------------------------


def coordinates(count: int, height: int, width: int) -> Tensor:
    """Images that say where each pixel was: channel 0 its row + 1, channel 1 its column + 1."""
    rows = torch.arange(1, height + 1)[:, None].expand(height, width)
    columns = torch.arange(1, width + 1)[None, :].expand(height, width)
    return torch.stack([rows, columns]).to(torch.uint8).expand(count, 2, height, width)


def read_off(batch: Tensor, padding: int) -> tuple[Tensor, Tensor, Tensor]:
    """top, left and flip of crops of ``coordinates``, from the pixels of the result alone."""
    pixels = (batch * 255).round().long()
    size = pixels.shape[-1]
    rows, columns = pixels[:, 0].amax(2), pixels[:, 1].amax(1)  # per line, 0 where it is padding
    inner = size // 2  # a line that no crop of these tests loses to the padding
    assert (rows[:, inner] > 0).all()
    assert (columns[:, inner - 1 : inner + 1] > 0).all()
    flip = columns[:, inner] < columns[:, inner - 1]
    left = torch.where(flip, columns[:, inner] - 1 - (size - 1 - inner), columns[:, inner] - 1 - inner) + padding
    return rows[:, inner] - 1 - inner + padding, left, flip


@pytest.mark.parametrize(("height", "size", "padding"), [(8, 8, 2), (7, 8, 2), (8, 6, 1), (8, 8, 0)])
@pytest.mark.parametrize("over", ["samples", "draws"])
def test_positions_and_flips_are_uniform_and_independent(height: int, size: int, padding: int, over: str) -> None:
    images = coordinates(15_000, height, height)
    if over == "samples":
        batch = augment_crop(images, torch.arange(15_000), FIRST, seed=SEED + 3, size=size, padding=padding)
    else:
        index = torch.arange(50)
        draws = [
            augment_crop(images, index, torch.tensor(d), seed=SEED + 3, size=size, padding=padding) for d in range(300)
        ]
        batch = torch.cat(draws)
    top, left, flip = read_off(batch, padding)
    positions = 2 * padding + 1 + height - size
    assert top.min() == left.min() == 0
    assert top.max() == left.max() == positions - 1
    cells = (top * positions + left) * 2 + flip
    assert_uniform(cells, 2 * positions**2)


def test_all_289_positions_of_the_papers_crop_are_equally_likely() -> None:
    crops = decide_crop(torch.arange(60_000), FIRST, SEED, (32, 32), 32, 8, True)
    assert_uniform(crops.top * 17 + crops.left, 289)
    assert abs(float(crops.flip.double().mean()) - 0.5) < 5 * 0.5 / 60_000**0.5


def slow_crop(image: np.ndarray, top: int, left: int, flip: bool, size: int, padding: int) -> np.ndarray:
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    crop = padded[:, top : top + size, left : left + size]
    return (crop[:, :, ::-1] if flip else crop).astype(np.float32) / np.float32(255)


CROPS = [
    ((1, 28, 28), 32, 8),  # MNIST in the paper
    ((3, 32, 32), 32, 8),  # CIFAR in the paper
    ((3, 32, 32), 32, 4),
    ((3, 32, 32), 24, 0),
    ((2, 10, 13), 9, 3),
    ((1, 8, 8), 8, 1),
]


@pytest.mark.parametrize(("shape", "size", "padding"), CROPS)
@pytest.mark.parametrize("flip", [True, False])
def test_crops_equal_pad_slice_flip(shape: tuple[int, int, int], size: int, padding: int, flip: bool) -> None:
    images = random_images(40, *shape)
    index = torch.randperm(40, generator=torch.Generator().manual_seed(SEED + 1))[:30].repeat(2)
    draw = torch.tensor(17)
    batch = augment_crop(images, index, draw, seed=SEED + 9, size=size, padding=padding, flip=flip)
    assert batch.dtype == torch.float32
    assert batch.shape == (60, shape[0], size, size)
    crops = decide_crop(index, draw, SEED + 9, shape[1:], size, padding, flip)
    assert crops.flip.any() == flip
    assert (crops.top > 0).any()
    for row, sample in enumerate(index.tolist()):
        decisions = int(crops.top[row]), int(crops.left[row]), bool(crops.flip[row])
        expected = slow_crop(images[sample].numpy(), *decisions, size, padding)
        assert np.array_equal(batch[row].numpy(), expected)


def test_padding_is_exactly_black_and_nothing_else_is() -> None:
    images = torch.full((500, 3, 32, 32), 255, dtype=torch.uint8)
    batch = augment_crop(images, torch.arange(500), FIRST, seed=0)
    crops = decide_crop(torch.arange(500), FIRST, 0, (32, 32), 32, 8, True)
    assert sorted(batch.unique().tolist()) == [0.0, 1.0]
    seen = (32 - (crops.top - 8).abs()) * (32 - (crops.left - 8).abs())
    assert torch.equal(batch.sum((1, 2, 3)).long(), 3 * seen)


def test_a_crop_that_cannot_be_is_refused() -> None:
    images = random_images(2, 1, 8, 8)
    with pytest.raises(DataError, match="no crop of 32×32 fits into 8×8 padded by 8"):
        augment_crop(images, torch.arange(2), FIRST, seed=0)
    with pytest.raises(DataError, match="padded by -1"):
        augment_crop(images, torch.arange(2), FIRST, seed=0, size=4, padding=-1)
    with pytest.raises(DataError, match="must be uint8"):
        augment_crop(images.float(), torch.arange(2), FIRST, seed=0, size=8)


# --- what every augmentation promises ---------------------------------------------------------------------------------

Augmentation = Callable[[Tensor, Tensor, Tensor, int], Tensor]
AUGMENTATIONS: dict[str, Augmentation] = {
    "crop": lambda images, index, draw, seed: augment_crop(images, index, draw, seed=seed, size=24, padding=4),
    "resized crop": lambda images, index, draw, seed: augment_resized_crop(images, index, draw, seed=seed, size=16),
    "flip": lambda images, index, draw, seed: flip_only(images, index, draw, seed=seed, size=24),
    "resize and flip": lambda images, index, draw, seed: flip_only(images, index, draw, seed=seed, size=11),
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_result_does_not_depend_on_the_batch(name: str) -> None:
    augment, images = AUGMENTATIONS[name], random_images(101, 3, 24, 24)
    index, draw = torch.arange(101), torch.tensor(4)
    whole = augment(images, index, draw, 1)
    for cut in (1, 7, 50):
        assert torch.equal(torch.cat([augment(images, part, draw, 1) for part in index.split(cut)]), whole)
    order = torch.randperm(101, generator=torch.Generator().manual_seed(SEED + 2))
    assert torch.equal(augment(images, order, draw, 1), whole[order])
    assert torch.equal(augment(images, index.int(), draw, 1), whole)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_draws_seeds_and_samples_differ(name: str) -> None:
    """All images are one image, so what differs is the decision. A flip is the other one half the time."""
    augment, images = AUGMENTATIONS[name], random_images(1, 3, 24, 24).expand(400, 3, 24, 24)
    index = torch.arange(400)
    base = augment(images, index, FIRST, SEED)
    assert torch.equal(augment(images, index, FIRST.clone(), SEED), base)
    others = [augment(images, index, torch.tensor(1), SEED), augment(images, index, FIRST, SEED + 1), base.roll(1, 0)]
    low, high = (0.35, 0.65) if "flip" in name else (0.95, 1.0)
    for other in others:
        changed = (other != base).flatten(1).any(1).double().mean()
        assert low <= changed <= high


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_global_generator_is_left_alone(name: str) -> None:
    before = torch.get_rng_state()
    first = AUGMENTATIONS[name](random_images(5, 3, 24, 24), torch.arange(5), FIRST, 0)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(AUGMENTATIONS[name](random_images(5, 3, 24, 24), torch.arange(5), FIRST, 0), first)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_values_are_float32_between_0_and_1(name: str) -> None:
    images = random_images(300, 3, 24, 24)
    images[:, :, :12] = 255
    batch = AUGMENTATIONS[name](images, torch.arange(300), FIRST, 0)
    assert batch.dtype == torch.float32
    assert batch.min() >= 0
    assert 0.999999 < batch.max() <= 1 + 1e-6


# --- RandomResizedCrop ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "size"), [((3, 64, 64), 32), ((1, 20, 31), 12), ((2, 16, 16), 32)])
def test_resized_crops_equal_slice_interpolate_flip(shape: tuple[int, int, int], size: int) -> None:
    images, index, draw = random_images(60, *shape), torch.arange(60).flip(0), torch.tensor(3)
    batch = augment_resized_crop(images, index, draw, seed=SEED + 2, size=size)
    crops = decide_resized_crop(index, draw, SEED + 2, shape[1:], (0.08, 1.0), (3 / 4, 4 / 3), True)
    assert len(crops.height.unique()) > 5
    assert crops.flip.any()
    for row, sample in enumerate(index.tolist()):
        top, left, height, width = (int(value[row]) for value in crops[:4])
        box = images[sample, :, top : top + height, left : left + width].double() / 255
        expected = interpolate(box[None], (size, size), mode="bilinear", antialias=True)[0]
        expected = expected.flip(2) if crops.flip[row] else expected
        assert (batch[row] - expected).abs().max() < 2e-6


def test_resized_boxes_are_distributed_as_asked() -> None:
    """With shares of 0.25 to 0.5 and these aspects every first box fits, so both are exactly uniform."""
    n, side = 40_000, 1000
    crops = decide_resized_crop(torch.arange(n), FIRST, SEED, (side, side), (0.25, 0.5), (3 / 4, 4 / 3), True)
    share = crops.height.double() * crops.width / side**2
    aspect = (crops.width.double() / crops.height).log() / np.log(4 / 3)
    assert_uniform(((share - 0.25) * 4 * 20).long().clamp(0, 19), 20)
    assert_uniform(((aspect + 1) * 10).long().clamp(0, 19), 20)
    assert abs(float(torch.corrcoef(torch.stack([share, aspect]))[0, 1])) < 5 / n**0.5
    for start, extent in ((crops.top, crops.height), (crops.left, crops.width)):
        assert start.min() >= 0
        assert (start + extent).max() <= side
        where = start.double() / (side - extent + 1)  # in [0, 1): uniform, whatever the box
        assert_uniform((where * 20).long(), 20)


def test_boxes_that_do_not_fit_are_drawn_again() -> None:
    crops = decide_resized_crop(torch.arange(20_000), FIRST, SEED, (64, 64), (0.08, 1.0), (3 / 4, 4 / 3), True)
    assert (crops.height <= 64).all()
    assert (crops.width <= 64).all()
    assert torch.minimum(crops.height, crops.width).min() >= 15  # sqrt(0.08 × 3/4) × 64 = 15.7, rounded
    share = crops.height * crops.width / 64**2
    # a whole image needs an aspect near 1, so large boxes are rarer than uniform, but they are there
    assert 0.02 < (share > 0.9).double().mean() < 0.08
    assert abs(float((share < 0.54).double().mean()) - 0.54) < 0.05


@pytest.mark.parametrize(
    ("shape", "ratio", "box"),
    [
        ((64, 64), (2.0, 2.0), (16, 0, 32, 64)),
        ((64, 64), (0.5, 0.5), (0, 16, 64, 32)),
        ((30, 90), (1.0, 1.0), (0, 30, 30, 30)),
    ],
)
def test_the_fallback_is_the_largest_centred_box(
    shape: tuple[int, int], ratio: tuple[float, float], box: tuple[int, ...]
) -> None:
    crops = decide_resized_crop(torch.arange(50), FIRST, 0, shape, (1.0, 1.0), ratio, False)
    for value, expected in zip(crops[:4], box, strict=True):
        assert value.tolist() == [expected] * 50
    assert not crops.flip.any()


def test_impossible_boxes_are_refused() -> None:
    images = random_images(2, 1, 8, 8)
    for scale, ratio in (((0.0, 1.0), (1.0, 1.0)), ((0.5, 1.5), (1.0, 1.0)), ((0.1, 1.0), (2.0, 1.0))):
        with pytest.raises(DataError, match="scale must be"):
            augment_resized_crop(images, torch.arange(2), FIRST, seed=0, scale=scale, ratio=ratio)


# --- evaluation -------------------------------------------------------------------------------------------------------


def test_plain_pads_28_to_32_by_two() -> None:
    images = random_images(3, 1, 28, 28)
    batch = plain(images, torch.tensor([2, 0]), size=32)
    expected = torch.zeros(2, 1, 32, 32)
    expected[:, :, 2:30, 2:30] = images[[2, 0]].float() / 255
    assert torch.equal(batch, expected)


def test_plain_keeps_and_pads_unevenly() -> None:
    images = random_images(3, 3, 32, 32)
    assert torch.equal(plain(images, torch.tensor([1]), size=32), images[[1]].float() / 255)
    padded = plain(images, torch.tensor([1]), size=35)
    assert torch.equal(padded[:, :, 1:33, 1:33], images[[1]].float() / 255)
    assert padded.sum() == pytest.approx(float((images[1].float() / 255).sum()), rel=1e-6)


@pytest.mark.parametrize(("shape", "size"), [((3, 64, 64), 32), ((3, 64, 64), 23), ((1, 40, 33), 32)])
def test_plain_resizes_with_antialiasing(shape: tuple[int, int, int], size: int) -> None:
    images = random_images(5, *shape)
    expected = interpolate(images.double() / 255, (size, size), mode="bilinear", antialias=True)
    assert (plain(images, torch.arange(5), size=size) - expected).abs().max() < 2e-6


def test_plain_is_pillows_resize_up_to_rounding() -> None:
    pil = pytest.importorskip("PIL.Image")
    images = random_images(4, 3, 64, 64)
    for row, image in enumerate(plain(images, torch.arange(4), size=32)):
        picture = pil.fromarray(images[row].permute(1, 2, 0).numpy()).resize((32, 32), pil.Resampling.BILINEAR)
        expected = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
        assert (image * 255 - expected).abs().max() < 1.01  # Pillow rounds to bytes after each of its two passes


def test_plain_refuses_a_mixture() -> None:
    with pytest.raises(DataError, match="8×40 are neither inside nor outside 32×32"):
        plain(random_images(1, 1, 8, 40), torch.tensor([0]), size=32)


@pytest.mark.parametrize("size", [24, 11, 30])
def test_flip_only_is_plain_or_its_mirror(size: int) -> None:
    images, index = random_images(2000, 1, 24, 24), torch.arange(2000)
    batch, upright = flip_only(images, index, FIRST, seed=SEED, size=size), plain(images, index, size=size)
    as_is = (batch == upright).flatten(1).all(1)
    mirrored = (batch == upright.flip(3)).flatten(1).all(1)
    assert (as_is ^ mirrored).all()
    assert abs(float(mirrored.double().mean()) - 0.5) < 5 * 0.5 / 2000**0.5


def test_normalize() -> None:
    x = torch.rand(4, 3, 5, 5)
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    result = normalize(x, mean, std)
    for channel in range(3):
        assert torch.allclose(result[:, channel] * std[channel] + mean[channel], x[:, channel], atol=1e-6)
    assert not torch.allclose(result[:, 0], x[:, 0])
    with pytest.raises(DataError, match="mean has 1 and std 3 values, the images have 3 channels"):
        normalize(x, (0.5,), std)
    with pytest.raises(DataError, match="std must be above 0"):
        normalize(x, mean, (1.0, 0.0, 1.0))


# --- on a CUDA device -------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_captured_in_a_graph_and_replayed(name: str) -> None:
    """One graph over persistent buffers: a new draw and new indices give what the CPU gives."""

    def step(images: Tensor, index: Tensor, draw: Tensor) -> Tensor:
        return normalize(AUGMENTATIONS[name](images, index, draw, 3), (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))

    host = random_images(300, 3, 24, 24)
    images, index, draw = host.cuda(), torch.arange(64).cuda(), torch.tensor(0).cuda()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step(images, index, draw)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = step(images, index, draw)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for number in range(3):
        rows = torch.randperm(300)[:64]
        index.copy_(rows)
        draw.fill_(number)
        graph.replay()
        expected = step(host, rows, torch.tensor(number))
        assert (result.cpu() - expected).abs().max() < 5e-6
