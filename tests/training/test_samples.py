"""Samples as the loop takes them, their features in evaluation mode, and their order in an epoch."""

from __future__ import annotations

import pytest
import torch
from digits_trainer import CPU
from seeds import SEED

from vmcr2.data import DataSettings, Pictures, Split
from vmcr2.models import build
from vmcr2.training import Numerics, Rows, embed, epoch_order

PLAIN = Numerics(CPU)


def test_rows_are_what_they_were_made_of() -> None:
    rows = Rows(torch.randn(7, 3), torch.arange(7))
    index, draw = torch.tensor([4, 0, 4]), torch.tensor(9)
    assert len(rows) == 7
    assert torch.equal(rows.training_batch(index, draw), rows.x[index])
    assert torch.equal(rows.plain_batch(index), rows.x[index])


def test_embed_is_the_network_on_plain_pictures_in_evaluation_mode() -> None:
    images = torch.randint(0, 256, (2100, 1, 8, 8), dtype=torch.uint8)  # more than one block of 2000
    settings = DataSettings(image_size=8, mean=(0.3,), std=(0.5,), augmentation="crop")
    split = Split(images, torch.zeros(2100, dtype=torch.int64))
    pictures = Pictures(split, settings, seed=SEED, device=CPU)
    network = build("mlp", dim=16, input_shape=(1, 8, 8), hidden=(32,), batch_norm=True).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    z = embed(network, pictures, PLAIN)
    assert network.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())  # BatchNorm too
    assert not z.requires_grad
    with torch.no_grad():
        expected = network.eval()((images.float() / 255 - 0.3) / 0.5)
    assert torch.allclose(z, expected, atol=1e-5)
    embed(network, pictures, PLAIN)
    assert not network.training  # left as it was


@pytest.mark.parametrize("total", [1, 2, 1437])
def test_an_epoch_sees_every_sample_once(total: int) -> None:
    order = epoch_order(total, SEED, 0)
    assert order.dtype == torch.int64
    assert order.sort().values.tolist() == list(range(total))


def test_orders_differ_between_epochs_and_seeds_and_come_again() -> None:
    keys = [(seed, epoch) for seed in range(5) for epoch in range(20)]
    orders = {key: tuple(epoch_order(50, *key).tolist()) for key in keys}
    assert len(set(orders.values())) == 100
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert all(tuple(epoch_order(50, *key).tolist()) == order for key, order in orders.items())
    assert torch.equal(torch.get_rng_state(), state)


def test_the_order_is_uniform_enough() -> None:
    """Where sample 0 stands over many epochs: everywhere alike (χ² of 9 degrees of freedom, p = 0.001).

    The seed is fixed: torch's generator gives the same numbers on every CPU.
    """
    places = torch.tensor([int((epoch_order(10, 3, epoch) == 0).nonzero()) for epoch in range(2000)])
    counts = torch.bincount(places, minlength=10).double()
    assert ((counts - 200) ** 2 / 200).sum() < 27.9


def test_a_large_seed_is_fine() -> None:
    assert epoch_order(20, 2**62, 3).tolist() != epoch_order(20, 2**62, 4).tolist()


class Squares:
    """Black pictures that count how many of them are asked for at a time."""

    def __init__(self, total: int, side: int) -> None:
        self.total, self.side = total, side
        self.batches: list[int] = []

    def __len__(self) -> int:
        return self.total

    def plain_batch(self, index: torch.Tensor) -> torch.Tensor:
        self.batches.append(len(index))
        return torch.zeros(1, 1, self.side, self.side).expand(len(index), -1, -1, -1)


@pytest.mark.parametrize(
    ("total", "side", "largest"), [(2100, 8, 2000), (2100, 32, 2000), (600, 64, 500), (3, 2048, 1)]
)
def test_larger_pictures_are_measured_fewer_at_a_time(total: int, side: int, largest: int) -> None:
    """As many pixels as 2000 pictures of 32×32: the activations of a network must fit into memory."""
    squares = Squares(total, side)
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    assert embed(network, squares, Numerics(CPU)).shape == (total, 1)
    assert max(squares.batches) == largest
