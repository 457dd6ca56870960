"""Featurizers: networks whose outputs are unit vectors, (n, …) -> (n, dim). ``build`` makes one by its name."""

from ._adapters import Featurizer
from ._backbone import HasBackbone
from ._mlp import MLP
from ._mnist import MNISTNet
from ._preact import PreActResNet18
from ._registry import MODELS, build
from ._resnet import ResNet18
from ._settings import ModelSettings
from ._state import load_into
from ._views import ViewMean
from ._weights import load_weights

__all__ = [
    "MLP",
    "MODELS",
    "Featurizer",
    "HasBackbone",
    "MNISTNet",
    "ModelSettings",
    "PreActResNet18",
    "ResNet18",
    "ViewMean",
    "build",
    "load_into",
    "load_weights",
]
