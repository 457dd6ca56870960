"""Which network makes the features."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from .._shared import Settings, UserError, setting
from ._registry import MODELS, build
from ._weights import load_weights, sha256_of

# Images that a run must see before cuDNN's search for algorithms wins its time back: 6 s for a ResNet, which then gains
# little. MNIST's one convolution by cuDNN gains more, at once.
_SEARCH_FROM = {"mnist-cnn": 0}
_SEARCH_FROM_ELSE = 50_000_000
_MOST_LAYERS = 1000


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
        self._check_size(input_shape)
        network = self._built(input_shape)
        if with_weights and self.weights is not None:
            load_weights(network, self.weights)
        return network

    def _built(self, input_shape: tuple[int, ...]) -> nn.Module:
        try:
            return build(
                self.name, dim=self.dim, input_shape=input_shape, hidden=self.hidden, batch_norm=self.batch_norm
            )
        except ValueError as error:
            raise UserError(str(error)) from error

    def _check_size(self, input_shape: tuple[int, ...]) -> None:
        """A network that this machine cannot hold is a :class:`UserError`, before its memory is asked for.

        It is built without memory, on the meta device, which draws nothing. People's own networks and those of
        libraries may not take that.
        """
        if self.name not in MODELS:
            return
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            layers = self._built(input_shape)
        size = sum(tensor.nbytes for tensor in (*layers.parameters(), *layers.buffers()))
        if size > memory_of_machine() / 2:
            raise UserError(
                f"the network would have {size / 2**30:,.0f} GiB of weights, more than half of this machine's memory: "
                f"lower dim ({self.dim}), hidden or image_size"
            )

    def contradictions(self) -> Iterator[str]:
        """Too many layers for Python to walk through."""
        if len(self.hidden) > _MOST_LAYERS:
            yield f"hidden has {len(self.hidden)} layers: give at most {_MOST_LAYERS}"

    @cached_property
    def weights_sha256(self) -> str | None:
        """Of the file ``weights``, for a run's records; None if there is none."""
        return None if self.weights is None else sha256_of(self.weights)

    def search_pays(self, images: int) -> bool:
        """Whether a run over so many images wins back the time in which cuDNN tries its algorithms."""
        return images >= _SEARCH_FROM.get(self.name, _SEARCH_FROM_ELSE)


def memory_of_machine() -> float:
    """Bytes; infinity where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, AttributeError):  # AttributeError: Windows has no sysconf
        return float("inf")
