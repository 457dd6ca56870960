"""What the training loop needs of a training set, and of any set that features are computed of."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn

from ..distributed import ALONE, Ranks
from ._numerics import Numerics

_BATCH = {"cpu": 2000, "cuda": 10_000}  # few large batches: on a GPU small ones are mostly launch time
_PIXELS = 32 * 32  # up to this size of a picture


class Inputs(Protocol):
    """Samples that a network can see."""

    def __len__(self) -> int: ...

    def plain_batch(self, index: Tensor) -> Tensor:
        """The inputs of ``index`` (n,), as they are measured."""


class Samples(Inputs, Protocol):
    """A training set, on its device or on its way there."""

    @property
    def labels(self) -> Tensor:
        """int64 (N,), on the device."""

    def bring(self, index: Tensor) -> None:
        """Called before a training step with the host's index of its batch: have the inputs on the device."""

    def expect(self, index: Tensor) -> None:
        """Called after a training step was started, with the index of the next: the device is busy meanwhile."""

    mixing: bool
    """Whether samples are mixed with others in training. May be switched off and on between epochs, if it is on."""

    def training_batch(self, index: Tensor, draw: Tensor, others: Tensor | None = None) -> Tensor:
        """The inputs of ``index`` as they are trained on; ``draw`` is the number of the epoch, a 0-dim tensor.

        ``index`` may be a part of a batch. If samples are mixed, ``others`` then says with which.
        """

    def memberships(self, index: Tensor, labels: Tensor, draw: Tensor, num_classes: int) -> Tensor:
        """What the objective is told of a whole batch that is mixed, instead of its labels (m,): Π (m, k)."""


class Rows:
    """Samples that are rows of numbers, without augmentation."""

    mixing = False

    def __init__(self, x: Tensor, labels: Tensor) -> None:
        self.x = x
        self.labels = labels

    def __len__(self) -> int:
        return len(self.x)

    def bring(self, index: Tensor) -> None:
        """Nothing: the rows are on the device."""

    def expect(self, index: Tensor) -> None:
        """Likewise."""

    def training_batch(self, index: Tensor, draw: Tensor, others: Tensor | None = None) -> Tensor:
        """The rows of ``index``."""
        return self.x[index]

    def memberships(self, index: Tensor, labels: Tensor, draw: Tensor, num_classes: int) -> Tensor:
        """Rows are not mixed."""
        raise NotImplementedError

    def plain_batch(self, index: Tensor) -> Tensor:
        """The same."""
        return self.x[index]


class NoisyRows(Rows):
    """Rows that are trained on with Gaussian noise, drawn again for every batch. They are measured without."""

    def __init__(self, x: Tensor, labels: Tensor, spread: Tensor) -> None:
        super().__init__(x, labels)
        self.spread = spread
        """The noise's standard deviation in every column."""

    def training_batch(self, index: Tensor, draw: Tensor, others: Tensor | None = None) -> Tensor:
        """The rows of ``index`` and noise."""
        x = super().training_batch(index, draw)
        return x + self.spread * torch.randn_like(x)


@torch.no_grad()
def embed(network: nn.Module, inputs: Inputs, numerics: Numerics, ranks: Ranks = ALONE) -> Tensor:
    """Features of every sample, in order, in evaluation mode. The network's mode is restored.

    Each process computes those of its share, and all of them get all.
    """
    was_training = network.training
    network.eval()
    index = torch.arange(len(inputs), device=numerics.device)
    size = _rows_at_a_time(inputs.plain_batch(index[:1]), numerics.device)
    with numerics.applied():
        own = torch.split(ranks.own(index), size)
        features = torch.cat([network(numerics.cast(inputs.plain_batch(part))) for part in own])
    network.train(was_training)
    return ranks.gather(features, len(index))


def _rows_at_a_time(sample: Tensor, device: torch.device) -> int:
    """Fewer of larger pictures: their activations must fit into memory too."""
    pixels = sample.shape[-1] * sample.shape[-2] if sample.ndim == 4 else 1
    return max(1, _BATCH.get(device.type, 2000) * _PIXELS // max(_PIXELS, pixels))


def epoch_order(total: int, seed: int, epoch: int) -> Tensor:
    """The order of samples in an epoch: a function of seed and epoch, so that a resumed run needs no state for it."""
    return torch.randperm(total, generator=order_generator(seed, epoch))


def order_generator(seed: int, epoch: int) -> torch.Generator:
    """The random numbers of an epoch's order."""
    return torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)


def even_batch(rows: int, largest: int) -> int:
    """The size of the fewest even batches of at most ``largest`` rows; BatchNorm needs two rows at least.

    >>> even_batch(600, 500), even_batch(5, 2)
    (300, 2)
    """
    return rows // max(1, min(math.ceil(rows / largest), rows // 2))
