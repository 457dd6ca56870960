"""Which network makes the features."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from .._shared import Settings, UserError, setting
from ._registry import build

# Images that a run must see before a compiled network wins its compile time back (benchmarks/README.md). For the
# ResNets it does not pay: their own fused kernels are as fast. An MLP is all matrix products: nothing to gain.
_COMPILE_FROM = {"mnist-cnn": 10_000_000}
# The same for cuDNN's search: 6 s for a ResNet, which then gains little. MNIST's few convolutions gain more, at once.
_SEARCH_FROM = {"mnist-cnn": 0}
_SEARCH_FROM_ELSE = 50_000_000


@dataclass(frozen=True)
class ModelSettings(Settings):
    """The section ``model`` of a configuration."""

    name: str = setting("mlp", name="model")
    """"mlp", "mnist-cnn", "resnet18" or "preact18"."""
    hidden: tuple[int, ...] = setting((256, 256), at_least=1, only_with={"model": ("mlp",)})
    """Widths of the MLP's layers."""
    batch_norm: bool = setting(True, only_with={"model": ("mlp",)})
    """Whether they have BatchNorm: without it a rate reduction starts, and may stay, collapsed."""
    dim: int = setting(128, at_least=1)
    """d, the number of features."""

    def build(self, input_shape: tuple[int, ...]) -> nn.Module:
        """The network, untrained, for samples of this shape."""
        try:
            return build(
                self.name, dim=self.dim, input_shape=input_shape, hidden=self.hidden, batch_norm=self.batch_norm
            )
        except ValueError as error:
            raise UserError(str(error)) from error

    def compile_pays(self, images: int) -> bool:
        """Whether a run over so many images wins the compile time back, on a GPU."""
        return images >= _COMPILE_FROM.get(self.name, images + 1)

    def search_pays(self, images: int) -> bool:
        """Whether it wins back the time in which cuDNN tries its algorithms."""
        return images >= _SEARCH_FROM.get(self.name, _SEARCH_FROM_ELSE)
