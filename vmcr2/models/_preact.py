"""Pre-activation ResNet-18 for small images, with the paper's reshaping head."""

from __future__ import annotations

from itertools import chain
from typing import cast

from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from ..functional import check_count
from ._backbone import HasBackbone
from ._convolutions import convolve_shortcut, convolve_small_stem
from ._fused_norm import add_norm_relu, fusable, norm_relu
from ._head import reshaping_head, unit_rows


class PreActBlock(nn.Module):
    """bn-relu-conv-bn-relu-conv, plus the input; where the shape changes, a 1×1 convolution of the activated input."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, channels, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Conv2d(in_channels, channels, kernel_size=1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, in_channels, h, w) -> (n, channels, ⌈h/stride⌉, ⌈w/stride⌉)."""
        out, past = self.branches(x)
        out += past
        return out

    def branches(self, a: Tensor, b: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What the block adds up, from the summands of its input: the next norm adds and sums up in one pass."""
        x, active, again = add_norm_relu(self.bn1, a, b)
        if self.shortcut is not None:
            active, x = convolve_shortcut(self.shortcut, active, again)
        out: Tensor = self.conv2(norm_relu(self.bn2, self.conv1(active)))
        return out, x


class PreActResNet18(HasBackbone):
    """Pre-activation ResNet-18 with a 3×3 stem, then the reshaping layers of Architecture 2; (n, c, h, w) -> (n, dim).

    The backbone of Table 3. The stem keeps the resolution: 32×32 images are still 4×4 in the last stage. This costs
    about 15 times the arithmetic of :class:`ResNet18`. Weights start at torch's defaults, as is usual for small images.

    The paper names the backbone and cites Yun et al., but does not describe the head. We use the same head as in the
    other networks. The blocks are He et al.'s: identity shortcuts of the raw input, and one bn-relu before the pool.
    The code of Yun et al. differs: it has a bn-relu after the stem, none before the pool, and all its shortcuts take
    the activated input.

    Args:
        dim: d, the number of features.
        in_channels: channels of the images.

    >>> import torch
    >>> z = PreActResNet18(500)(torch.rand(2, 3, 32, 32))
    >>> z.shape, torch.allclose(z.norm(dim=1), torch.ones(2))
    (torch.Size([2, 500]), True)

    References:
        He et al., `Identity Mappings in Deep Residual Networks <https://arxiv.org/abs/1603.05027>`_, 2016.
        Yun et al., `Regularizing Class-wise Predictions via Self-knowledge Distillation
        <https://arxiv.org/abs/2003.13964>`_, 2020.
    """

    def __init__(self, dim: int, in_channels: int = 3) -> None:
        super().__init__()
        check_count(dim, "dim")
        check_count(in_channels, "in_channels")
        self.dim = dim
        self.conv1 = nn.Conv2d(in_channels, 64, kernel_size=3, padding=1, bias=False)
        self.layer1 = nn.Sequential(PreActBlock(64, 64, 1), PreActBlock(64, 64, 1))
        self.layer2 = nn.Sequential(PreActBlock(64, 128, 2), PreActBlock(128, 128, 1))
        self.layer3 = nn.Sequential(PreActBlock(128, 256, 2), PreActBlock(256, 256, 1))
        self.layer4 = nn.Sequential(PreActBlock(256, 512, 2), PreActBlock(512, 512, 1))
        self.bn = nn.BatchNorm2d(512)
        self.head = reshaping_head(dim)

    def backbone(self, images: Tensor) -> Tensor:
        """The pooled last stage: (n, c, h, w) -> (n, 512)."""
        x = convolve_small_stem(self.conv1, images)
        if fusable(self.bn, x):
            active = self._stages(x)
        else:
            active = norm_relu(self.bn, self.layer4(self.layer3(self.layer2(self.layer1(x)))))
        return adaptive_avg_pool2d(active, 1).flatten(1)

    def _stages(self, x: Tensor) -> Tensor:
        """All blocks and the last norm. Each sum of two branches is computed by the norm after it."""
        branches: tuple[Tensor, Tensor | None] = (x, None)
        for block in chain(self.layer1, self.layer2, self.layer3, self.layer4):
            branches = cast(PreActBlock, block).branches(*branches)
        return add_norm_relu(self.bn, *branches)[1]

    def forward(self, images: Tensor) -> Tensor:
        """Unit rows (n, dim) of images (n, in_channels, h, w)."""
        return unit_rows(self.head(self.backbone(images)))
