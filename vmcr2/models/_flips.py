"""Features averaged over a picture and its mirror image: half the noise of a network that was trained on both."""

from __future__ import annotations

from torch import Tensor, nn

from ._head import unit_rows


class FlipMean(nn.Module):
    """The unit mean of a network's features of a picture and of its mirror image. It shares the network's weights.

    It is for measuring and predicting: a forward pass costs twice as much.

    >>> import torch
    >>> net = FlipMean(nn.Sequential(nn.Flatten(), nn.Linear(12, 4)))
    >>> x = torch.rand(2, 3, 2, 2)
    >>> torch.allclose(net(x), net(x.flip(3)))
    True
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.training = network.training  # a new module is in training mode, and who measures restores the mode

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, height, width) -> unit rows (n, dim)."""
        return unit_rows(self.network(x) + self.network(x.flip(3)))
