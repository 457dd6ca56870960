"""How a network is optimised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from .._shared import Settings, setting


@dataclass(frozen=True)
class OptimSettings(Settings):
    """The section ``optim`` of a configuration."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    """The network's optimiser."""
    lr: float = setting(0.1, above=0, at_most=1e30)
    """Its learning rate, at the schedule's top."""
    backbone_rate: float = setting(1.0, at_least=0, at_most=1e30, idle_with={"model": ("mlp", "mnist-cnn")})
    """The backbone's learning rate as a part of ``lr``; 0 freezes it. The head always learns with ``lr``."""
    momentum: float = setting(0.9, at_least=0, below=1, only_with={"optimizer": ("sgd",)})
    """Of SGD."""
    nesterov: bool = setting(False, only_with={"optimizer": ("sgd",)})
    """Of SGD."""
    weight_decay: float = setting(0.0, at_least=0, at_most=1e30)
    """On the weights of layers. See ``decay_all`` for the rest."""
    decay_all: bool = False
    """Decay BatchNorm's parameters and biases too."""
    schedule: Literal["constant", "step", "cosine", "linear"] = "constant"
    """"step" divides by 10 at each of ``milestones``; "cosine" and "linear" fall to 0."""
    milestones: tuple[float, ...] = setting((0.5, 0.75), above=0, at_most=1, only_with={"schedule": ("step",)})
    """Parts of the run after which "step" divides."""
    warmup_epochs: float = setting(0.0, at_least=0)
    """Epochs over which the rate rises from 0 in a straight line, before the schedule."""
    dropout_until: float = setting(1.0, at_least=0, at_most=1, only_with={"model": ("mnist-cnn",)})
    """Part of the run after which the network's dropout is off: features are measured without its noise."""
    mix_until: float = setting(1.0, at_least=0, at_most=1, only_with={"mix": ("mixup", "cutmix")})
    """Part of the run after which pictures are no longer mixed: features are measured on whole ones."""
    average: float = setting(0.0, at_least=0, below=1)
    """Decay per step of a running mean of the weights. A run is measured by that mean and keeps it; 0 for none.
    BatchNorm's statistics are recomputed for it."""
    epochs: int = setting(100, at_least=1, at_most=10**9)
    """Passes over the training set."""
    batch_size: int = setting(1000, at_least=1)
    """m. Samples that do not fill a batch are left out of that epoch. A smaller training set is one batch."""
    samples_per_class: int = setting(0, at_least=0)
    """S: a batch has S samples of each of ``batch_size``/S classes, for data with many classes. 0: of any classes."""

    def contradictions(self) -> Iterator[str]:
        """Between the settings of SGD."""
        if self.optimizer == "sgd" and self.nesterov and self.momentum == 0:
            yield "nesterov needs momentum above 0"
        if self.samples_per_class and self.batch_size % self.samples_per_class:
            whole = max(1, self.batch_size // self.samples_per_class) * self.samples_per_class
            yield (
                f"batch_size must be a multiple of samples_per_class, got {self.batch_size} and "
                f"{self.samples_per_class}: use batch_size {whole}"
            )
