"""What the trained estimators share: arguments, checks, fitting, features."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import nn

from ._arguments import number, usable_device, whole, widths
from ._calibration import Array
from ._training import (
    LR,
    MOST_EPOCHS,
    OBJECTIVES,
    WEIGHT_DECAY,
    Featurizer,
    Samples,
    Settings,
    Trainer,
    build_network,
    seeded,
)

_CHUNK = 4096


class RateReductionBase(BaseEstimator):  # type: ignore[misc]
    """A featurizer trained by one of the three objectives."""

    classes_: Array
    featurizer_: Featurizer

    _dim_argument = "dim"
    """The argument that gives the number of features."""

    def _settings(self, num_classes: int, samples: int) -> Settings:
        """The arguments with every None replaced, and checked."""
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {self.objective!r}")
        given = getattr(self, self._dim_argument)
        dim = default_dim(num_classes) if given is None else whole(self._dim_argument, given)
        batch_size = whole("batch_size", self.batch_size)
        epochs = default_epochs(self.objective, samples, batch_size) if self.epochs is None else self.epochs
        atoms = min(12, dim, max(2, 2 * dim // num_classes)) if self.atoms_per_class is None else self.atoms_per_class
        decay = WEIGHT_DECAY[self.objective] if self.weight_decay is None else self.weight_decay
        return Settings(
            objective=self.objective,
            num_classes=num_classes,
            dim=dim,
            hidden=widths(self.hidden) if self.network is None else (),
            epochs=whole("epochs", epochs),
            batch_size=batch_size,
            lr=number("lr", LR[self.objective] if self.lr is None else self.lr),
            weight_decay=number("weight_decay", decay, zero=True),
            eps_sq=number("eps_sq", self.eps_sq),
            weight=number("weight", self.weight),
            batch_expansion=number("batch_expansion", self.batch_expansion, zero=True),
            atoms_per_class=whole("atoms_per_class", atoms),
            device=usable_device(self.device),
        )

    def _new_trainer(self, X: Array, settings: Settings, rng: np.random.RandomState) -> Trainer:
        mean, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if self.standardize:
            mean, spread = X.mean(axis=0), X.std(axis=0)
            # a constant column has a spread of rounding errors, which are as small as its numbers are
            scale = np.where(spread > 1e-10 * np.abs(X).max(axis=0), spread, 1.0)
        sample = torch.zeros(2, X.shape[1])
        with seeded(rng, settings.device):
            network = build_network(self.network, X.shape[1], settings.dim, settings.hidden, sample)
            return Trainer(settings, Featurizer(network.float(), mean, scale))

    def _samples(
        self, trainer: Trainer, X: Array, labels: Array, logs: Array | None = None, weights: Array | None = None
    ) -> Samples:
        """Rows and labels for the trainer, by the logarithms of class weights and, for cross-entropy, by weights."""
        settings = trainer.settings
        # standardised in float64, then float32 for the network
        x = trainer.featurizer.standardize(torch.tensor(X, dtype=torch.float64, device=settings.device)).float()
        targets = torch.as_tensor(labels).to(settings.device)
        if logs is None:
            return Samples(x, targets)
        by_class = np.exp(logs - logs.max())[labels]
        if settings.objective == "ce":
            by_sample = by_class if weights is None else weights * by_class
            return Samples(x, targets, weights=torch.as_tensor(by_sample, dtype=torch.float32, device=settings.device))
        return Samples(x, targets, draw=by_class / by_class.sum() if np.ptp(logs) > 0 else None)

    def _run(
        self, trainer: Trainer, data: Samples, rng: np.random.RandomState, stop: Callable[[int], bool] | None = None
    ) -> None:
        """All epochs under a progress bar, or until ``stop`` says so."""
        settings = trainer.settings
        with seeded(rng, settings.device), progress(self.verbose, settings.epochs) as tick:

            def after_epoch(epoch: int) -> bool:
                tick(f"{settings.objective}, loss {trainer.loss_curve[-1]:.3f}" if trainer.loss_curve else "training")
                return stop is not None and stop(epoch)

            trainer.run(data, rng, after_epoch)

    def _keep(self, trainer: Trainer) -> None:
        # in float64, so that a point's features do not depend on the batch in which it comes
        self.featurizer_ = copy.deepcopy(trainer.featurizer).double().eval()
        self.loss_curve_ = list(trainer.loss_curve)
        self.n_iter_ = trainer.epochs_done

    @property
    def network_(self) -> nn.Module:
        """The trained network, which sees standardised inputs."""
        return self.featurizer_.network

    @torch.no_grad()
    def _features(self, X: Array) -> Array:
        """Unit features of validated rows, float64."""
        device = self.featurizer_.mean.device
        parts = []
        for start in range(0, len(X), _CHUNK):
            x = torch.tensor(X[start : start + _CHUNK], dtype=torch.float64, device=device)
            parts.append(self.featurizer_(self.featurizer_.standardize(x)).cpu().numpy())
        features: Array = np.concatenate(parts)
        return features

    def _validated(self, X: Any) -> Array:
        rows: Array = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        return rows

    def _random(self) -> np.random.RandomState:
        # a copy: fitting twice with one RandomState of the caller may differ, but nothing is shared with partial_fit
        return np.random.RandomState(check_random_state(self.random_state).randint(2**31 - 1))


def default_dim(num_classes: int) -> int:
    """13 per class up to the paper's 128 (10 classes), at least its 5 per class (500 for 100 classes), at most 512.

    A step costs d³ and more. But k orthogonal subspaces need k dimensions: beyond 512 classes there is one each.
    """
    return max(num_classes, min(512, max(5 * num_classes, min(128, 13 * num_classes))))


def default_epochs(objective: str, samples: int, batch_size: int) -> int:
    """About 300 steps: at most 200 epochs (100 of the objectives that need fewer), at least 30."""
    steps = math.ceil(samples / batch_size)
    return max(30, min(MOST_EPOCHS[objective], 300 // steps))


@contextlib.contextmanager
def progress(verbose: int, epochs: int) -> Iterator[Callable[[str], None]]:
    """A bar that the returned function moves on by an epoch; nothing where not verbose."""
    if not verbose:
        yield lambda _text: None
        return
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task("training", total=epochs)
        yield lambda text: bar.update(task, advance=1, description=text)
