"""Features averaged over views of a picture: less noise, where the network was trained on pictures like them."""

from __future__ import annotations

import functools
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
        views = self.views(x)
        if torch.compiler.is_exporting():  # an exported file would hold the network once for each view
            of_each = list(views)
            return unit_rows(self.network(torch.cat(of_each)).unflatten(0, (len(of_each), -1)).sum(0))
        return unit_rows(functools.reduce(torch.add, map(self.network, views)))

    def views(self, x: Tensor) -> Iterator[Tensor]:
        """Each of the shape of x."""
        for moved in self._moved(x):
            yield from (moved, moved.flip(3)) if self.flips else (moved,)

    def _moved(self, x: Tensor) -> Iterator[Tensor]:
        """The picture alone, or with a border around it that a window of its own size moves over."""
        self._check(x)
        if not self.shift:
            yield x
            return
        border = [self.shift] * 4
        wide = nn.functional.pad(x, border)
        if self.black:
            inside = nn.functional.pad(torch.ones_like(x[:1, :1], dtype=torch.bool), border)
            wide = torch.where(inside, wide, x.new_tensor(self.black).reshape(1, -1, 1, 1))
        height, width = x.shape[2:]
        for top, left in itertools.product((2 * self.shift, self.shift, 0), repeat=2):
            yield wide[:, :, top : top + height, left : left + width]

    def _check(self, x: Tensor) -> None:
        if x.ndim != 4:
            raise ValueError(f"x must be (n, channels, height, width), got {tuple(x.shape)}")
        if self.shift and self.black and len(self.black) != x.shape[1]:
            raise ValueError(
                f"black must have {x.shape[1]} numbers, one for each channel of the pictures, got {len(self.black)}"
            )
