"""Which network makes the features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import nn

from .._shared import Settings, UserError, setting
from ._registry import build
from ._weights import load_weights, sha256_of

# Images that a run must see before cuDNN's search for algorithms wins its time back: 6 s for a ResNet, which then gains
# little. MNIST's one convolution by cuDNN gains more, at once.
_SEARCH_FROM = {"mnist-cnn": 0}
_SEARCH_FROM_ELSE = 50_000_000


@dataclass(frozen=True)
class ModelSettings(Settings):
    """The section ``model`` of a configuration."""

    name: str = setting("mlp", name="model")
    """"mlp", "mnist-cnn", "resnet18" or "preact18"; "package.module:factory" for one's own; "timm:NAME" or
    "torchvision:NAME"."""
    hidden: tuple[int, ...] = setting((256, 256), at_least=1, only_with={"model": ("mlp",)})
    """Widths of the MLP's layers."""
    batch_norm: bool = setting(True, only_with={"model": ("mlp",)})
    """Whether they have BatchNorm: without it a rate reduction starts, and may stay, collapsed."""
    dim: int = setting(128, at_least=1)
    """d, the number of features."""
    weights: str | None = setting(None, idle_with={"model": ("mlp", "mnist-cnn")})
    """A file with the first weights of the backbone: a state_dict in .safetensors, .pt or .pth. None draws them."""

    def build(self, input_shape: tuple[int, ...], *, with_weights: bool = True) -> nn.Module:
        """The network, untrained, for samples of this shape.

        Its backbone is filled from ``weights``. Without ``with_weights`` the file is not read: whoever loads a saved
        run replaces all weights, and the file may be gone by then.
        """
        try:
            network = build(
                self.name, dim=self.dim, input_shape=input_shape, hidden=self.hidden, batch_norm=self.batch_norm
            )
        except ValueError as error:
            raise UserError(str(error)) from error
        if with_weights and self.weights is not None:
            load_weights(network, self.weights)
        return network

    @cached_property
    def weights_sha256(self) -> str | None:
        """Of the file ``weights``, for a run's records; None if there is none."""
        return None if self.weights is None else sha256_of(self.weights)

    def search_pays(self, images: int) -> bool:
        """Whether a run over so many images wins back the time in which cuDNN tries its algorithms."""
        return images >= _SEARCH_FROM.get(self.name, _SEARCH_FROM_ELSE)
