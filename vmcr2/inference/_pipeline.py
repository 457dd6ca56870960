"""From pictures or rows to answers, in one module: what a run does, in a form that can be exported."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ..data import resize_matrix
from ._readout import Readout

OUTPUTS = ("label", "probabilities", "novelty", "features")
"""Names of what an exported model answers, in this order:

- label, int64 (n,): the number of the likeliest class
- probabilities, float32 (n, k): calibrated if the run is
- novelty, float32 (n,): how foreign the sample is, in [0, 1]
- features, float32 (n, d): unit rows
"""


class Plain(nn.Module):
    """uint8 pictures (n, C, H, W) as the network sees them: ``data.plain`` and ``data.normalize``, for one shape.

    Resizing is linear along each axis, so two constant matrices do it for any number of pictures.

    Args:
        shape: (channels, height, width) of the pictures.
        size: height and width that the network sees.
        mean: subtracted from pictures from 0 to 1, one number per channel; empty for none.
        std: they are divided by it.

    >>> Plain((1, 2, 2), 4)(torch.full((1, 1, 2, 2), 255, dtype=torch.uint8))[0, 0]
    tensor([[0., 0., 0., 0.],
            [0., 1., 1., 0.],
            [0., 1., 1., 0.],
            [0., 0., 0., 0.]])
    """

    rows: Tensor
    columns: Tensor
    mean: Tensor
    std: Tensor

    def __init__(
        self, shape: tuple[int, int, int], size: int, mean: Sequence[float] = (), std: Sequence[float] = ()
    ) -> None:
        super().__init__()
        channels, height, width = shape
        down, right = size - height, size - width
        self.resizes = down < 0 or right < 0
        self.around = () if self.resizes else (right // 2, right - right // 2, down // 2, down - down // 2)
        self.standardises = len(mean) > 0
        if self.resizes:
            self.register_buffer("rows", resize_matrix(height, size))
            self.register_buffer("columns", resize_matrix(width, size).T.contiguous())
        if self.standardises:
            self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).reshape(channels, 1, 1))
            self.register_buffer("std", torch.tensor(std, dtype=torch.float32).reshape(channels, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        """float32 (n, C, size, size)."""
        x = pixels.to(torch.float32)
        if self.resizes:
            x = self.rows @ x @ self.columns
        elif any(self.around):
            x = pad(x, self.around)
        x = x / 255
        return (x - self.mean) / self.std if self.standardises else x


class Pipeline(nn.Module):
    """Preparation, network and read-out. It holds copies, in float32, on the CPU and in evaluation mode.

    Args:
        plain: what pictures go through first; None for rows of a table, which are prepared already.
        network: makes the features.
        readout: makes the answers.
        shape: of one sample: (channels, height, width), or (columns,).
    """

    def __init__(self, plain: Plain | None, network: nn.Module, readout: Readout, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.plain = plain
        # on a GPU convolutions are channels last: here the order of numbers in memory is the usual one
        self.network = deepcopy(network).cpu().float().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self.readout = deepcopy(readout).cpu().float()
        self.requires_grad_(False)
        self.eval()

    @property
    def takes(self) -> str:
        """The name of its input: "pixels", uint8; or "rows", float32."""
        return "pixels" if len(self.shape) == 3 else "rows"

    @property
    def dtype(self) -> torch.dtype:
        """Of its input."""
        return torch.uint8 if len(self.shape) == 3 else torch.float32

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``OUTPUTS`` for n samples, uint8 (n, C, H, W) or float32 (n, columns)."""
        features = self.network(inputs if self.plain is None else self.plain(inputs)).float()
        answers = self.readout(features)
        return answers.labels, answers.probabilities, answers.novelty, features

    def trials(self, sizes: Sequence[int]) -> list[Tensor]:
        """Batches of these sizes to try it on: shapes with edges and noise, or rows of standard numbers."""
        generator = torch.Generator().manual_seed(0)
        return [self._trial(size, generator) for size in sizes]

    def _trial(self, size: int, generator: torch.Generator) -> Tensor:
        if self.plain is None:
            return torch.randn(size, *self.shape, generator=generator)
        channels, height, width = self.shape
        coarse = torch.rand(size, channels, 4, 4, generator=generator)
        large = torch.nn.functional.interpolate(coarse, (height, width), mode="nearest")
        noise = torch.rand(size, *self.shape, generator=generator)
        return (255 * (0.8 * large + 0.2 * noise)).to(torch.uint8)
