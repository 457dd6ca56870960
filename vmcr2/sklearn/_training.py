"""Connects the estimators to the training loop: arguments become settings, rows of an array become samples."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..classifiers import NearestSubspace
from ..functional import normalize_rows
from ..inference import Array
from ..models import MLP
from ..objectives import OBJECTIVES, ObjectiveSettings
from ..training import (
    Engine,
    Loop,
    NoisyRows,
    Numerics,
    Optimizer,
    OptimSettings,
    Rows,
    Step,
    TrainingError,
    embed,
    epoch_order,
    even_batch,
    forked_random,
    order_generator,
)

LOG_POINTS = 20
"""Entries of the loss curve: the value of a rate reduction costs as much as a step, so not every step has one."""


@dataclass(frozen=True)
class Plan:
    """An estimator's arguments as settings, with every None replaced."""

    objective: ObjectiveSettings
    optim: OptimSettings
    num_classes: int
    dim: int
    hidden: tuple[int, ...]
    input_noise: float
    device: torch.device
    seed: int


def objective_settings(name: str, **given: Any) -> ObjectiveSettings:
    """The settings of an objective. Values that it does not have are ignored."""
    kind = OBJECTIVES[name]
    own = {key: value for key, value in given.items() if key in kind.known()}
    return kind(**own)


@dataclass(frozen=True)
class Samples:
    """Standardised inputs and their labels, on the device."""

    x: Tensor
    labels: Tensor
    draw: Tensor | None = None
    """Probabilities by which an epoch draws its rows; None takes every row once."""
    weights: Tensor | None = None
    """Weights of the samples, for objectives that take them."""

    def order(self, seed: int, epoch: int) -> Tensor:
        """The rows of an epoch."""
        if self.draw is None:
            return epoch_order(len(self.x), seed, epoch)
        return torch.multinomial(self.draw, len(self.x), replacement=True, generator=order_generator(seed, epoch))


class Featurizer(nn.Module):
    """A network with a fixed step before and after it: inputs are standardised, features get unit length."""

    mean: Tensor
    scale: Tensor

    def __init__(self, network: nn.Module, mean: Array, scale: Array) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float64))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float64))

    def standardize(self, x: Tensor) -> Tensor:
        """The network's inputs."""
        return (x - self.mean.to(x.dtype)) / self.scale.to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Unit rows (n, d) of standardised inputs."""
        z: Tensor = self.network(x)
        return z if isinstance(self.network, MLP) else normalize_rows(z)  # our MLP normalises its output itself


def build_network(network: Any, in_features: int, dim: int, hidden: tuple[int, ...], sample: Tensor) -> nn.Module:
    """The MLP, a copy of the given module, or what the given function returns."""
    if network is None:
        return MLP(in_features, dim, hidden, batch_norm=True)
    made = callable(network) and not isinstance(network, nn.Module)
    built = network(in_features, dim) if made else copy.deepcopy(network)
    if not isinstance(built, nn.Module):
        raise TypeError(f"network must be a torch.nn.Module or a function that returns one, got {type(built).__name__}")
    with torch.no_grad():
        shape = tuple(copy.deepcopy(built).float().eval()(sample).shape)
    if shape != (len(sample), dim):
        raise ValueError(f"network must give {dim} features per row (dim), but its output has the shape {shape}")
    return built


class Trainer:
    """A featurizer, its objective and its optimiser. :meth:`run` trains all epochs, :meth:`epoch` trains one more.

    ``make`` builds the featurizer under the plan's seed, and then the objective is built. So a run of
    :mod:`vmcr2.runs` with the same settings starts from the same weights. ``spread`` is the standard deviation of every
    input, in whose units the plan gives the noise.
    """

    def __init__(self, plan: Plan, make: Callable[[], Featurizer], labels: Tensor, spread: Tensor) -> None:
        self.plan = plan
        self.spread = spread.to(plan.device)
        self.numerics = Numerics(plan.device)
        with forked_random(plan.device):
            torch.manual_seed(plan.seed)
            self.featurizer = make().to(plan.device)
            batch = min(plan.optim.batch_size, len(labels))
            self.objective = plan.objective.build(plan.num_classes, plan.dim, labels.cpu(), batch)
        self.objective.module.to(plan.device)
        self.optimizer: Optimizer | None = None
        self.epochs_done = 0
        self.loss_curve: list[float] = []

    def run(self, data: Samples, after_epoch: Callable[[int], bool]) -> None:
        """All epochs of the plan; stops when ``after_epoch`` returns True."""
        log_every = max(1, self.plan.optim.epochs // LOG_POINTS)

        def ended(epoch: int) -> bool:
            self.epochs_done += 1
            if (epoch + 1) % log_every == 0 or epoch + 1 == self.plan.optim.epochs:
                self.loss_curve.append(self.loss(data))
            return after_epoch(epoch)

        self._train(data, self.plan.optim, lambda loop: loop.run(0, ended=ended))

    def epoch(self, data: Samples) -> None:
        """One more pass over these samples, at a constant learning rate."""
        # as one of very many epochs: nothing must happen that belongs to the end of a run
        optim = replace(self.plan.optim, schedule="constant", epochs=10**9)
        self._train(data, optim, lambda loop: loop.train_epoch(self.epochs_done))
        self.epochs_done += 1
        self.loss_curve.append(self.loss(data))

    def _train(self, data: Samples, optim: OptimSettings, work: Callable[[Loop], object]) -> None:
        """Call ``work`` with a loop over these samples. Torch's random numbers are restored afterwards."""
        step = Step(
            self.featurizer,
            self.objective,
            self._rows(data),
            optim,
            batch_size=even_batch(len(data.x), optim.batch_size),
            dim=self.plan.dim,
            seed=self.plan.seed,
            numerics=self.numerics,
            weights=data.weights,
            optimizer=self.optimizer,
        )
        self.optimizer = step.optimizer
        loop = Loop(step, Engine(step, capture="eager"), lambda epoch: data.order(self.plan.seed, epoch))
        with forked_random(self.plan.device):
            torch.manual_seed(self.plan.seed + self.epochs_done)
            try:
                work(loop)
            except TrainingError as error:
                raise ValueError(f"{str(error).split('. ')[0]}: choose a smaller lr than {optim.lr:g}") from error

    def _rows(self, data: Samples) -> Rows:
        if not self.plan.input_noise:
            return Rows(data.x, data.labels)
        return NoisyRows(data.x, data.labels, self.plan.input_noise * self.spread)

    def features(self, x: Tensor) -> Tensor:
        """Features of standardised inputs in evaluation mode."""
        return embed(self.featurizer, Rows(x, x), self.numerics)

    @torch.no_grad()
    def loss(self, data: Samples) -> float:
        """The objective's value on some of these samples, in evaluation mode."""
        some = epoch_order(len(data.x), self.plan.seed, 0)[: self.plan.optim.batch_size].to(data.x.device)
        z = self.features(data.x[some])
        return float(self.objective.loss(z, data.labels[some])) * self.plan.objective.loss_scale


def portable(trainer: Trainer) -> Trainer:
    """The same on the CPU, to be pickled: the machine that reads it may have no GPU. Momentum is left behind."""
    if trainer.plan.device.type == "cpu":
        return trainer
    cpu = torch.device("cpu")
    moved = copy.copy(trainer)
    moved.featurizer, moved.objective = copy.deepcopy((trainer.featurizer, trainer.objective))
    moved.featurizer.to(cpu)
    moved.objective.module.to(cpu)
    moved.plan, moved.numerics = replace(trainer.plan, device=cpu), Numerics(cpu)
    moved.spread, moved.optimizer = trainer.spread.to(cpu), None
    return moved


class EarlyStopping:
    """Looks at the hold-out every few epochs, keeps the best state, and says when to stop."""

    def __init__(
        self,
        trainer: Trainer,
        train: Samples,
        held: Samples,
        n_components: int | None,
        patience: int,
        *,
        by_head: bool,
    ) -> None:
        self.trainer = trainer
        self.train = train
        self.held = held
        self.n_components = n_components
        self.patience = patience
        self.by_head = by_head
        self.scores: list[float] = []
        self._best, self._best_at = -1.0, 0

    def __call__(self, epoch: int) -> bool:
        """Whether to stop after this epoch."""
        every = max(1, min(5, self.patience // 3))
        if (epoch + 1) % every and epoch + 1 < self.trainer.plan.optim.epochs:
            return False
        self.scores.append(self.accuracy())
        if self.scores[-1] > self._best:
            self._best, self._best_at = self.scores[-1], epoch
            self._states = copy.deepcopy([part.state_dict() for part in self._parts()])
        return epoch - self._best_at >= self.patience

    def go_back(self) -> None:
        """Restore the best state. It exists, because the last epoch is always measured."""
        for part, state in zip(self._parts(), self._states, strict=True):
            part.load_state_dict(state)

    def _parts(self) -> tuple[nn.Module, nn.Module]:
        return self.trainer.featurizer, self.trainer.objective.module

    @torch.no_grad()
    def accuracy(self) -> float:
        """On the hold-out: by the head, or by the training samples' subspaces."""
        z = self.trainer.features(self.held.x)
        predicted = self.trainer.objective.predict(z) if self.by_head else None
        if predicted is None:
            subspaces = NearestSubspace(self.trainer.plan.num_classes, self.n_components)
            predicted = subspaces.fit(self.trainer.features(self.train.x), self.train.labels).predict(z)
        return float((predicted == self.held.labels).double().mean())
