"""ResNet-18 with torchvision's parameter names and the paper's reshaping head."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import cast

from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from ..functional import check_count
from ._backbone import HasBackbone
from ._convolutions import convolve_3x3, convolve_shortcut, convolve_stem
from ._fused_norm import fusable, norm_alone, norm_relu, norm_relu_pool, norm_relu_twice
from ._head import reshaping_head, unit_rows
from ._state import check_fit, copy_state


class BasicBlock(nn.Module):
    """conv-bn-relu-conv-bn, plus the input (through a 1×1 convolution where the shape changes), then relu."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, channels, kernel_size=1, stride=stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(n, in_channels, h, w) -> (n, channels, ⌈h/stride⌉, ⌈w/stride⌉)."""
        return self.for_two(x, x)[0]

    def for_two(self, x: Tensor, again: Tensor) -> tuple[Tensor, Tensor]:
        """The output for the two readers in the next block, from an input for two: see ``norm_relu_twice``."""
        if self.downsample is not None:
            convolution, norm = self.downsample
            x, again = convolve_shortcut(cast(nn.Conv2d, convolution), x, again)
            again = norm_alone(cast(nn.BatchNorm2d, norm), again)
        out = norm_relu(self.bn1, convolve_3x3(self.conv1, x))
        return norm_relu_twice(self.bn2, convolve_3x3(self.conv2, out), residual=again)


class ResNet18(HasBackbone):
    """torchvision's ResNet-18 without ``fc``, then the reshaping layers of Architecture 2; (n, c, h, w) -> (n, dim).

    The stem is ImageNet's (7×7 with stride 2, max-pool); the paper uses it on 32×32 images too. These are 1×1 in the
    last stage, so training needs at least two images per batch. The backbone's names and initialisation are
    torchvision's; see ``load_backbone``.

    Args:
        dim: d, the number of features.
        in_channels: channels of the images.

    >>> import torch
    >>> z = ResNet18(500)(torch.rand(2, 3, 32, 32))
    >>> z.shape, torch.allclose(z.norm(dim=1), torch.ones(2))
    (torch.Size([2, 500]), True)

    References:
        He et al., `Deep Residual Learning for Image Recognition <https://arxiv.org/abs/1512.03385>`_, 2016.
    """

    def __init__(self, dim: int, in_channels: int = 3) -> None:
        super().__init__()
        check_count(dim, "dim")
        check_count(in_channels, "in_channels")
        self.dim = dim
        self.conv1 = nn.Conv2d(in_channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.head = reshaping_head(dim)
        for module in self.modules():  # as torchvision does; batch norms start at torch's default, 1 and 0
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def backbone(self, images: Tensor) -> Tensor:
        """The input of torchvision's ``fc``: (n, c, h, w) -> (n, 512)."""
        x = norm_relu_pool(self.bn1, convolve_stem(self.conv1, images))
        if fusable(self.bn1, x):
            both = (x, x)
            for block in chain(self.layer1, self.layer2, self.layer3, self.layer4):
                both = cast(BasicBlock, block).for_two(*both)
            x = both[0]
        else:
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        if x.shape[2:] != (1, 1):  # of 1×1 images the mean is the image: it need not be computed
            x = adaptive_avg_pool2d(x, 1)
        return x.flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        """Unit rows (n, dim) of images (n, in_channels, h, w)."""
        return unit_rows(self.head(self.backbone(images)))

    def load_backbone(self, state_dict: Mapping[str, Tensor]) -> None:
        """Copy the state of torchvision's resnet18 into the backbone. ``fc`` is ignored; the head does not change.

        ``num_batches_tracked`` may be missing: old files do not have it. Anything else that does not fit raises a
        ``ValueError``, and then nothing is copied.
        """
        given = {name: value for name, value in state_dict.items() if not name.startswith("fc.")}
        wanted = self.backbone_state()
        check_fit(
            wanted,
            given,
            names="this state_dict is not from torchvision's resnet18",
            shapes="this state_dict does not fit, because shapes differ",
        )
        copy_state(wanted, given)
