"""What the trained estimators share: arguments, checks, fitting, features."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from ._calibration import Array
from ._training import LR, MOST_EPOCHS, OBJECTIVES, WEIGHT_DECAY, Featurizer, Settings, Trainer, build_network, seeded

_CHUNK = 4096


class RateReductionBase(BaseEstimator):  # type: ignore[misc]
    """A featurizer trained by one of the three objectives."""

    featurizer_: Featurizer

    def _settings(self, num_classes: int, dim: int | None, samples: int) -> Settings:
        """The arguments with every None replaced, and checked."""
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {', '.join(OBJECTIVES)}, got {self.objective!r}")
        dim = default_dim(num_classes) if dim is None else dim
        batch = int(self.batch_size) if _whole(self.batch_size) else 1
        settings = Settings(
            objective=self.objective,
            num_classes=num_classes,
            dim=dim,
            epochs=default_epochs(self.objective, samples, batch) if self.epochs is None else self.epochs,
            batch_size=self.batch_size,
            lr=LR[self.objective] if self.lr is None else self.lr,
            weight_decay=WEIGHT_DECAY[self.objective] if self.weight_decay is None else self.weight_decay,
            eps_sq=self.eps_sq,
            weight=self.weight,
            batch_expansion=self.batch_expansion,
            atoms_per_class=(
                min(12, dim, max(2, 2 * dim // num_classes)) if self.atoms_per_class is None else self.atoms_per_class
            ),
            device=torch.device(self.device),
        )
        for name in ("dim", "epochs", "batch_size", "atoms_per_class"):
            value = getattr(settings, name)
            if not _whole(value):
                raise ValueError(f"{name} must be a whole number above 0, got {value!r}")
        for name in ("lr", "eps_sq", "weight"):
            value = getattr(settings, name)
            if not isinstance(value, Real) or not 0 < float(value) < math.inf:
                raise ValueError(f"{name} must be a number above 0, got {value!r}")
        return settings

    def _new_trainer(self, X: Array, settings: Settings, rng: np.random.RandomState) -> Trainer:
        mean, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if self.standardize:
            mean, spread = X.mean(axis=0), X.std(axis=0)
            # a constant column has a spread of rounding errors
            scale = np.where(spread > 1e-10 * np.maximum(1.0, np.abs(mean)), spread, 1.0)
        sample = torch.zeros(2, X.shape[1])
        with seeded(rng, settings.device):
            network = build_network(self.network, X.shape[1], settings.dim, self.hidden, sample)
            return Trainer(settings, Featurizer(network.float(), mean, scale))

    def _inputs(self, X: Array, settings: Settings, featurizer: Featurizer) -> Tensor:
        """Standardised in float64, then float32 for the network."""
        x: Tensor = featurizer.standardize(torch.tensor(X, dtype=torch.float64, device=settings.device))
        return x.float()

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


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and int(value) > 0


def default_dim(num_classes: int) -> int:
    """13 per class up to the paper's 128 (10 classes), and at least its 5 per class (500 for 100 classes)."""
    return max(5 * num_classes, min(128, 13 * num_classes))


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
