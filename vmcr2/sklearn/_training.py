"""Training on arrays: a plain loop over tensors, with the settings that work (docs/sklearn.md)."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..classifiers import NearestSubspace
from ..functional import normalize_rows
from ..losses import MCR2Loss, VMCR2Loss
from ..models import MLP
from ._calibration import Array

OBJECTIVES = ("vmcr2", "mcr2", "ce")
MOST_EPOCHS = {"vmcr2": 200, "mcr2": 100, "ce": 100}
LR = {"vmcr2": 0.3, "mcr2": 0.03, "ce": 1.0}
WEIGHT_DECAY = {"vmcr2": 2e-3, "mcr2": 5e-4, "ce": 5e-4}
LATCH_EVERY = 50
LOG_POINTS = 20
"""Entries of the loss curve: the value of a rate reduction costs as much as a step, so it is not taken at every one."""


@dataclass(frozen=True)
class Settings:
    """The estimator's arguments, with every None replaced."""

    objective: str
    num_classes: int
    dim: int
    hidden: tuple[int, ...]
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    eps_sq: float
    weight: float
    batch_expansion: float
    atoms_per_class: int
    device: torch.device


@dataclass(frozen=True)
class Samples:
    """Standardised inputs and their labels, on the device."""

    x: Tensor
    labels: Tensor
    draw: Array | None = None
    """Probabilities by which an epoch draws its rows; None takes every row once."""
    weights: Tensor | None = None
    """Of cross-entropy's terms."""


class Head(nn.Module):
    """Cross-entropy of a linear layer on the unit features, as in the paper; samples may have weights."""

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, num_classes)

    def forward(self, z: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """The weighted mean cross-entropy."""
        each = nn.functional.cross_entropy(self.linear(z), labels, reduction="none")
        return each.mean() if weights is None else (each * weights).sum() / weights.sum().clamp_min(1e-12)


class Featurizer(nn.Module):
    """A network between two fixed maps: standardised inputs, features on the unit sphere."""

    mean: Tensor
    scale: Tensor

    def __init__(self, network: nn.Module, mean: Array, scale: Array) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float64))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float64))

    def standardize(self, x: Tensor) -> Tensor:
        """What the network sees of an input."""
        return (x - self.mean.to(x.dtype)) / self.scale.to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Unit rows (n, d) of standardised inputs."""
        return normalize_rows(self.network(x))


def build_network(network: Any, in_features: int, dim: int, hidden: tuple[int, ...], sample: Tensor) -> nn.Module:
    """The MLP, a copy of the given module, or what the given function makes."""
    if network is None:
        return MLP(in_features, dim, hidden, batch_norm=True)
    made = callable(network) and not isinstance(network, nn.Module)
    built = network(in_features, dim) if made else copy.deepcopy(network)
    if not isinstance(built, nn.Module):
        raise TypeError(f"network must be a torch.nn.Module or a function that makes one, got {type(built).__name__}")
    with torch.no_grad():
        shape = tuple(copy.deepcopy(built).float().eval()(sample).shape)
    if shape != (len(sample), dim):
        raise ValueError(f"network must give {dim} features per row (dim), but its output has the shape {shape}")
    return built


def build_objective(settings: Settings) -> VMCR2Loss | MCR2Loss | Head:
    """The loss of the settings; its own parameters, if any, are trained too."""
    k, d = settings.num_classes, settings.dim
    if settings.objective == "ce":
        return Head(d, k)
    if settings.objective == "mcr2":
        return MCR2Loss(k, eps_sq=settings.eps_sq, normalize=False)
    return VMCR2Loss(
        k,
        d,
        atoms_per_class=settings.atoms_per_class,
        eps_sq=settings.eps_sq,
        weight=settings.weight,
        batch_expansion=settings.batch_expansion,
        scale=0.05,
        normalize=False,
    )


@contextlib.contextmanager
def seeded(rng: np.random.RandomState, device: torch.device) -> Iterator[None]:
    """Torch's random numbers by this seed inside, as they were outside."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(rng.randint(2**31 - 1)))
        yield


class Trainer:
    """A featurizer, its objective and its optimiser; epochs over tensors."""

    def __init__(self, settings: Settings, featurizer: Featurizer) -> None:
        self.settings = settings
        self.featurizer = featurizer.to(settings.device)
        self.objective = build_objective(settings).to(settings.device)
        parameters = [*self.featurizer.parameters(), *self.objective.parameters()]
        self.optimizer = torch.optim.SGD(
            parameters, lr=settings.lr, momentum=0.9, nesterov=True, weight_decay=settings.weight_decay
        )
        self.epochs_done = 0
        self.loss_curve: list[float] = []

    def batches(self, n: int, rng: np.random.RandomState, draw: Array | None) -> list[Array]:
        """Rows of an epoch, shuffled, in batches of about one size; with ``draw``, drawn by these probabilities."""
        rows = rng.permutation(n) if draw is None else rng.choice(n, size=n, p=draw)
        # BatchNorm needs two rows: where the batch size is 2 and n odd, a batch has three
        return np.array_split(rows, max(1, min(math.ceil(n / self.settings.batch_size), n // 2)))

    def epoch(self, data: Samples, rng: np.random.RandomState) -> None:
        """One pass; V-MCR² must have been latched, or latches on the first batch."""
        self.featurizer.train()
        for rows in map(torch.as_tensor, self.batches(len(data.x), rng, data.draw)):
            self.optimizer.zero_grad(set_to_none=True)
            z, labels = self.featurizer(data.x[rows]), data.labels[rows]
            if isinstance(self.objective, Head):
                loss = self.objective(z, labels, None if data.weights is None else data.weights[rows])
            else:
                loss = self.objective.surrogate(z, labels)
            loss.backward()
            self.optimizer.step()
        self.epochs_done += 1
        if not bool(self.features(data.x[:2]).isfinite().all()):
            rate = self.optimizer.param_groups[0]["lr"]  # partial_fit may have set another than the settings'
            raise ValueError(f"training diverged in epoch {self.epochs_done}: choose a smaller lr than {rate:g}")

    def latch(self, x: Tensor, labels: Tensor) -> None:
        """Dictionary and codes anew from the training set (Algorithm 2); nothing for the other objectives."""
        if isinstance(self.objective, VMCR2Loss):
            self.objective.latch(self.features(x), labels)

    @torch.no_grad()
    def features(self, x: Tensor) -> Tensor:
        """Features of standardised inputs in evaluation mode."""
        self.featurizer.eval()
        return torch.cat([self.featurizer(part) for part in torch.split(x, 4096)])

    @torch.no_grad()
    def loss(self, x: Tensor, labels: Tensor) -> float:
        """The objective's value on these samples, in evaluation mode."""
        z = self.features(x)
        self.objective.eval()
        value = float(self.objective(z, labels))
        self.objective.train()
        return value

    def run(self, data: Samples, rng: np.random.RandomState, after_epoch: Callable[[int], bool]) -> None:
        """All epochs, the learning rate falling to 0 along a cosine; stops where ``after_epoch`` says so."""
        epochs = self.settings.epochs
        log_every = max(1, epochs // LOG_POINTS)
        for epoch in range(epochs):
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.lr * 0.5 * (1 + math.cos(math.pi * epoch / epochs))
            if epoch % LATCH_EVERY == 0:
                self.latch(data.x, data.labels)
            self.epoch(data, rng)
            if (epoch + 1) % log_every == 0 or epoch + 1 == epochs:
                few = slice(0, 2 * self.settings.batch_size)
                self.loss_curve.append(self.loss(data.x[few], data.labels[few]))
            if after_epoch(epoch):
                break


class EarlyStopping:
    """Looks at the hold-out every few epochs, keeps the best state, and says when to stop."""

    def __init__(
        self, trainer: Trainer, train: Samples, held: Samples, n_components: int | None, patience: int
    ) -> None:
        self.trainer = trainer
        self.train = train
        self.held = held
        self.n_components = n_components
        self.patience = patience
        self.scores: list[float] = []
        self._best, self._best_at = -1.0, 0

    def __call__(self, epoch: int) -> bool:
        """Whether to stop after this epoch."""
        every = max(1, min(5, self.patience // 3))
        if (epoch + 1) % every and epoch + 1 < self.trainer.settings.epochs:
            return False
        self.scores.append(self.accuracy())
        if self.scores[-1] > self._best:
            self._best, self._best_at = self.scores[-1], epoch
            parts = (self.trainer.featurizer, self.trainer.objective)
            self._states = copy.deepcopy([part.state_dict() for part in parts])
        return epoch - self._best_at >= self.patience

    def go_back(self) -> None:
        """To the best state, which exists: the last epoch is always looked at."""
        self.trainer.featurizer.load_state_dict(self._states[0])
        self.trainer.objective.load_state_dict(self._states[1])

    @torch.no_grad()
    def accuracy(self) -> float:
        """On the hold-out, of the head or of the training samples' subspaces."""
        z = self.trainer.features(self.held.x)
        if isinstance(self.trainer.objective, Head):
            predicted = self.trainer.objective.linear(z).argmax(1)
        else:
            subspaces = NearestSubspace(self.trainer.settings.num_classes, self.n_components)
            predicted = subspaces.fit(self.trainer.features(self.train.x), self.train.labels).predict(z)
        return float((predicted == self.held.labels).double().mean())
