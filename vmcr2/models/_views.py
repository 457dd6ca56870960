"""Features averaged over views of a picture: less noise, where the network was trained on pictures like them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ._head import unit_rows


class ViewMean(nn.Module):
    """The unit mean of a network's features over views of a picture. It shares the network's weights.

    It is for measuring and predicting: a forward pass costs as much as all views together.

    Args:
        network: (n, channels, height, width) -> (n, dim).
        flips: with the mirror image of every view.
        shift: also the picture moved by so many pixels to each side and to each corner; 0 for none.
        black: what fills the border of a moved picture, one number for each channel; 0 by default.

    >>> import torch
    >>> net = ViewMean(nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), flips=True)
    >>> x = torch.rand(2, 3, 2, 2)
    >>> torch.allclose(net(x), net(x.flip(3)))
    True
    """

    def __init__(self, network: nn.Module, *, flips: bool = False, shift: int = 0, black: Sequence[float] = ()) -> None:
        super().__init__()
        self.network, self.flips, self.shift, self.black = network, flips, shift, tuple(black)
        self.training = network.training  # a new module is in training mode, and who measures restores the mode

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, height, width) -> unit rows (n, dim)."""
        total = torch.stack([self.network(view) for view in self.views(x)]).sum(0)
        return unit_rows(total)

    def views(self, x: Tensor) -> Iterator[Tensor]:
        """Each of the shape of x."""
        for moved in self._moved(x):
            yield from (moved, moved.flip(3)) if self.flips else (moved,)

    def _moved(self, x: Tensor) -> Iterator[Tensor]:
        steps = (-self.shift, 0, self.shift) if self.shift else (0,)
        for down, right in itertools.product(steps, repeat=2):
            yield self._move(x, down, right) if down or right else x

    def _move(self, x: Tensor, down: int, right: int) -> Tensor:
        """With a border where the picture came from; as much is cut off on the other side."""
        border = (right, -right, down, -down)
        if not self.black:
            return nn.functional.pad(x, border)
        by_channel = zip(range(x.shape[1]), self.black, strict=True)
        return torch.cat([nn.functional.pad(x[:, at : at + 1], border, value=value) for at, value in by_channel], 1)
