"""Networks of timm and torchvision, without their last layer. Nothing is ever downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .._shared import UserError, did_you_mean
from ._adapters import Featurizer, feature_width, in_short

CLASSIFYING = ("fc", "classifier", "head", "heads")
"""Names of the part that ends in the classifying layer, in both libraries."""

_LISTS = {"timm": "timm.list_models()", "torchvision": "torchvision.models.list_models(torchvision.models)"}
# these two have more outputs in training, which are not features
_WITHOUT_HELPERS = {name: {"aux_logits": False, "init_weights": True} for name in ("googlenet", "inception_v3")}


def build_from_library(name: str, *, dim: int, input_shape: tuple[int, ...]) -> nn.Module:
    """The featurizer ``timm:NAME`` or ``torchvision:NAME``, untrained: its backbone and the reshaping head.

    torchvision's networks take three channels, so grey pictures are repeated to three.
    """
    library, _, own_name = name.partition(":")
    if len(input_shape) != 3:
        raise UserError(
            f"{name} takes pictures, but the samples are rows of shape {tuple(input_shape)}: "
            "use the model mlp, or a network of your own"
        )
    channels, *size = input_shape
    if library == "timm":
        backbone = _from_timm(own_name, channels)
    elif channels in (1, 3):
        backbone, channels = _from_torchvision(own_name), 3
    else:
        raise UserError(
            f"{name} takes pictures of one or three channels, got {channels}: use timm:{own_name}, or resnet18"
        )
    width = feature_width(backbone, (channels, *size), name)
    return Featurizer(backbone, dim, width, input_shape=input_shape, repeat_grey=channels != input_shape[0])


def _from_timm(name: str, channels: int) -> nn.Module:
    timm = _imported("timm")
    if not timm.is_model(name):  # hf-hub:NAME is none, and would download
        _refuse("timm", name, timm.list_models())
    return _built(f"timm:{name}", lambda: timm.create_model(name, pretrained=False, num_classes=0, in_chans=channels))


def _from_torchvision(name: str) -> nn.Module:
    models = _imported("torchvision").models
    names = models.list_models(module=models)  # those that classify: a detector downloads the weights of its backbone
    if name not in names:
        _refuse("torchvision", name, names)
    network = _built(
        f"torchvision:{name}", lambda: models.get_model(name, weights=None, **_WITHOUT_HELPERS.get(name, {}))
    )
    remove_last_layer(network, f"torchvision:{name}")
    return network


def remove_last_layer(network: nn.Module, name: str) -> None:
    """Put an Identity in place of the layer that classifies: the network then returns that layer's input.

    It is the last linear layer, or convolution, of the part called fc, classifier, head or heads.

    >>> net = nn.Sequential()
    >>> net.classifier = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1000))
    >>> remove_last_layer(net, "net")
    >>> net.classifier[2]
    Identity()
    """
    layers = [
        path
        for path, layer in network.named_modules()
        if path.split(".")[0] in CLASSIFYING and isinstance(layer, nn.Linear | nn.Conv2d)
    ]
    if not layers:
        raise UserError(
            f"{name} has no classifying layer called {', '.join(CLASSIFYING)}: use a network of your own that returns "
            "its features"
        )
    parent, _, own = layers[-1].rpartition(".")
    setattr(network.get_submodule(parent), own, nn.Identity())


def _imported(library: str) -> Any:
    try:
        if library == "timm":
            import timm as imported
        else:
            import torchvision as imported
    except ModuleNotFoundError as error:
        if error.name == library:
            raise UserError(f"{library} is not installed: pip install {library}") from None
        raise _broken(library, error) from error
    except Exception as error:  # torchvision of another torch: "operator torchvision::nms does not exist"
        raise _broken(library, error) from error
    return imported


def _broken(library: str, error: Exception) -> UserError:
    return UserError(
        f"{library} is installed, but cannot be imported ({in_short(error)}): install a torchvision that was built for "
        f"torch {torch.__version__}, from the same place as torch"
    )


def _refuse(library: str, name: str, names: list[str]) -> None:
    meant = did_you_mean(name, names) or f": {_LISTS[library]} has those that can be built"
    raise UserError(f"{library} has no model {name!r} for pictures{meant}")


def _built(name: str, make: Callable[[], Any]) -> nn.Module:
    try:
        network = make()
    except Exception as error:
        raise UserError(f"{name} cannot be built ({in_short(error)}): choose another network") from error
    if not isinstance(network, nn.Module):
        raise UserError(f"{name} gave a {type(network).__name__}, not a network: update the library")
    return network
