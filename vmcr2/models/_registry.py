"""Networks by name: built-in ones, of timm and torchvision, and people's own."""

from __future__ import annotations

import math

from torch import nn

from .._shared import did_you_mean
from ..functional import check_count
from ._libraries import build_from_library
from ._mlp import MLP
from ._mnist import INPUT_SHAPE, MNISTNet
from ._own import build_own
from ._preact import PreActResNet18
from ._resnet import ResNet18

MODELS = ("mnist-cnn", "resnet18", "preact18", "mlp")


def build(
    name: str, *, dim: int, input_shape: tuple[int, ...], hidden: tuple[int, ...] = (256, 256), batch_norm: bool = False
) -> nn.Module:
    """The featurizer called ``name`` for samples of ``input_shape``; its outputs are unit rows (n, dim).

    Args:
        name: one of ``MODELS``: "mnist-cnn", "resnet18", "preact18" or "mlp"; or "package.module:factory", where the
            factory is a function or class of one's own that returns a network and may take ``dim`` and
            ``input_shape``; or "timm:NAME" or "torchvision:NAME".
        dim: d, the number of features.
        input_shape: one sample's shape, without the batch: (channels, height, width); any shape for "mlp".
        hidden: widths of the hidden layers of "mlp". The other networks ignore it.
        batch_norm: whether "mlp" has BatchNorm in every hidden layer. The other networks ignore it.

    >>> net = build("mlp", dim=16, input_shape=(1, 8, 8), hidden=(32,))
    >>> sum(p.numel() for p in net.parameters())  # 64·32 + 32 + 32·16 + 16
    2608
    """
    if name not in MODELS and ":" not in str(name):
        meant = did_you_mean(str(name).lower(), MODELS) or "."
        raise ValueError(f"there is no model {name!r}{meant} The models are {', '.join(MODELS)}")
    if not input_shape:
        raise ValueError("input_shape is empty: give one sample's shape, such as (3, 32, 32) or (64,)")
    for size in input_shape:
        check_count(size, "every entry of input_shape")
    if ":" in name:
        check_count(dim, "dim")
        of_library = name.startswith(("timm:", "torchvision:"))
        make = build_from_library if of_library else build_own
        return make(name, dim=dim, input_shape=tuple(input_shape))
    if name == "mlp":
        return MLP(math.prod(input_shape), dim, hidden, batch_norm=batch_norm)
    if name == "mnist-cnn":
        if tuple(input_shape) != INPUT_SHAPE:
            raise ValueError(
                f"mnist-cnn needs input_shape (1, 32, 32), got {tuple(input_shape)}: "
                "one channel; pad or crop 28×28 images to 32×32"
            )
        return MNISTNet(dim)
    if len(input_shape) != 3:
        raise ValueError(
            f"{name} needs images, input_shape (channels, height, width), got {tuple(input_shape)}: "
            "use 'mlp' for vectors"
        )
    network = ResNet18 if name == "resnet18" else PreActResNet18
    return network(dim, in_channels=input_shape[0])
