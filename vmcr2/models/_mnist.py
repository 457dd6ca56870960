"""The MNIST network of the paper."""

from __future__ import annotations

from torch import Tensor, nn

from ..functional import check_count
from ._fused_mnist import convolutional, fusable
from ._head import unit_rows

INPUT_SHAPE = (1, 32, 32)


class MNISTNet(nn.Module):
    """Architecture 1 of the appendix: two 3×3 convolutions, dropout, two linear layers; (n, 1, 32, 32) -> (n, dim).

    ``Linear(12544, d)`` fixes the input: 12544 = 64·14², and 14 = (32 − 2 − 2)/2. Pad 28×28 images by 2.

    Args:
        dim: d, the number of features.

    >>> import torch
    >>> z = MNISTNet(128)(torch.rand(5, 1, 32, 32))
    >>> z.shape, torch.allclose(z.norm(dim=1), torch.ones(5))
    (torch.Size([5, 128]), True)
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        check_count(dim, "dim")
        self.dim = dim
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, kernel_size=3),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            nn.Flatten(),
            nn.Linear(12544, dim),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(dim, dim),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Unit rows (n, dim) of images (n, 1, 32, 32)."""
        if images.ndim != 4 or images.shape[1:] != INPUT_SHAPE:
            raise ValueError(
                f"MNISTNet needs images of shape (n, 1, 32, 32), got {tuple(images.shape)}: "
                "one channel, and 28×28 padded by 2 on every side"
            )
        if fusable(self.layers, images):
            return unit_rows(self.layers[6:](convolutional(self.layers, images)))
        return unit_rows(self.layers(images))
