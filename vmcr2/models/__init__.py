"""Featurizers: networks whose outputs are unit vectors, (n, …) -> (n, dim). ``build`` makes one by its name."""

from ._mlp import MLP
from ._mnist import MNISTNet
from ._preact import PreActResNet18
from ._registry import MODELS, build
from ._resnet import ResNet18
from ._settings import ModelSettings

__all__ = ["MLP", "MODELS", "MNISTNet", "ModelSettings", "PreActResNet18", "ResNet18", "build"]
