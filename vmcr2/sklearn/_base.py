"""What the trained estimators share: arguments, checks, fitting, features."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import nn

from ..inference import Array
from ..objectives import OBJECTIVES, choose_objective, default_dim, rows_rule
from ..training import OptimSettings
from ._arguments import number, one_of, usable_device, whole, widths
from ._notebook import LearnedInNotebooks
from ._training import (
    Featurizer,
    Plan,
    Samples,
    Trainer,
    build_network,
    objective_settings,
)

_CHUNK = 4096
AUTO = "auto"
"""An argument that the data decides."""


class RateReductionBase(LearnedInNotebooks, BaseEstimator):  # type: ignore[misc]
    """A featurizer trained by one of the objectives."""

    classes_: Array
    featurizer_: Featurizer

    _dim_argument = "dim"
    """The argument that gives the number of features."""

    def _plan(self, sizes: Array, seed: int, chosen: str | None = None) -> Plan:
        """The arguments with every None replaced, and checked, for classes of these sizes.

        ``chosen`` is the objective that "auto" has been before.
        """
        k, samples = len(sizes), int(sizes.sum())
        name = one_of("objective", self.objective, (AUTO, *OBJECTIVES))
        given = getattr(self, self._dim_argument)
        dim = default_dim(k) if given is None else whole(self._dim_argument, given)
        batch_size = whole("batch_size", self.batch_size)
        if name == AUTO:
            name = chosen or choose_objective(sizes.tolist(), batch_size, dim)
        values = rows_rule(name, k, dim, samples, batch_size) | self._given()
        steps = {key: values.pop(key) for key in list(values) if key in OptimSettings.known()}
        return Plan(
            objective=objective_settings(name, **values),
            optim=OptimSettings(**steps, batch_size=batch_size),
            num_classes=k,
            dim=dim,
            hidden=widths(self.hidden) if self.network is None else (),
            input_noise=number("input_noise", self.input_noise, zero=True),
            device=usable_device(self.device),
            seed=seed,
        )

    def _given(self) -> dict[str, Any]:
        """The settings among the arguments, checked; those that are None are for the rule to decide."""
        given: dict[str, Any] = {
            "eps_sq": number("eps_sq", self.eps_sq),
            "weight": number("weight", self.weight),
            "batch_expansion": number("batch_expansion", self.batch_expansion, zero=True),
        }
        for name in ("epochs", "atoms_per_class"):
            if (value := getattr(self, name)) is not None:
                given[name] = whole(name, value)
        for name in ("lr", "weight_decay", "rate_weight"):
            if (value := getattr(self, name)) is not None:
                given[name] = number(name, value, zero=name != "lr")
        return given

    def _new_trainer(self, X: Array, plan: Plan, labels: torch.Tensor) -> Trainer:
        """A trainer for these rows. ``labels`` say how large the classes of a batch can become."""
        # the spread of a constant column is rounding error, which is small compared with its numbers
        spread = X.std(axis=0)
        spread = np.where(spread > 1e-10 * np.abs(X).max(axis=0), spread, 0.0)
        mean, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if self.standardize:
            mean, scale = X.mean(axis=0), np.where(spread > 0, spread, 1.0)
        sample = torch.zeros(2, X.shape[1])

        def make() -> Featurizer:
            network = build_network(self.network, X.shape[1], plan.dim, plan.hidden, sample)
            return Featurizer(network.float(), mean, scale)

        return Trainer(plan, make, labels, torch.as_tensor(spread / scale, dtype=torch.float32))

    def _samples(
        self, trainer: Trainer, X: Array, labels: Array, logs: Array | None = None, weights: Array | None = None
    ) -> Samples:
        """Rows and labels for the trainer, with the logarithms of class weights and with sample weights."""
        device = trainer.plan.device
        # standardised in float64, then float32 for the network
        x = trainer.featurizer.standardize(torch.tensor(X, dtype=torch.float64, device=device)).float()
        targets = torch.as_tensor(labels).to(device)
        if logs is None:
            return Samples(x, targets)
        by_class = np.exp(logs - logs.max())[labels]
        drawn = torch.as_tensor(by_class / by_class.sum()) if np.ptp(logs) > 0 else None
        if not weighs_samples(trainer.plan.objective.name):
            return Samples(x, targets, draw=drawn)
        by_sample = np.ones(len(labels)) if weights is None else weights
        if trainer.objective.settings.weighs_samples:  # a sum over samples: weights are better than draws
            by_sample, drawn = by_sample * by_class, None
        return Samples(x, targets, drawn, torch.as_tensor(by_sample, dtype=torch.float32, device=device))

    def _run(self, trainer: Trainer, data: Samples, stop: Callable[[int], bool] | None = None) -> None:
        """All epochs under a progress bar, or until ``stop`` says so."""
        with progress(self.verbose, trainer.plan.optim.epochs) as tick:

            def after_epoch(epoch: int) -> bool:
                tick(f"{self.objective}, loss {trainer.loss_curve[-1]:.3f}" if trainer.loss_curve else "training")
                return stop is not None and stop(epoch)

            trainer.run(data, after_epoch)

    def _keep(self, trainer: Trainer) -> None:
        # in float64, so that a point's features do not depend on the other points of its batch; on the CPU, so that a
        # pickled model can be used on a machine without a GPU
        self.featurizer_ = copy.deepcopy(trainer.featurizer).double().cpu().eval()
        self.objective_ = trainer.plan.objective.name
        self.loss_curve_ = list(trainer.loss_curve)
        self.n_iter_ = trainer.epochs_done

    @property
    def network_(self) -> nn.Module:
        """The trained network. Its inputs are standardised rows."""
        return self.featurizer_.network

    @torch.no_grad()
    def _features(self, X: Array) -> Array:
        """Unit features of validated rows, float64."""
        device = self.featurizer_.mean.device
        parts = []
        for start in range(0, len(X), _CHUNK):
            x = torch.tensor(X[start : start + _CHUNK], dtype=torch.float64, device=device)
            parts.append(self.featurizer_(self.featurizer_.standardize(x)).cpu().numpy())
        return np.asarray(np.concatenate(parts))

    def _validated(self, X: Any) -> Array:
        return np.asarray(validate_data(self, X, dtype=np.float64, order="C", reset=False))

    def _seed(self) -> int:
        """``random_state`` itself if it is a number; else one drawn from it."""
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))


def weighs_samples(objective: str) -> bool:
    """Whether an objective has a term for every sample: cross-entropy, alone or beside a rate reduction."""
    return "ce" in objective.split("+")


@contextlib.contextmanager
def progress(verbose: int, epochs: int) -> Iterator[Callable[[str], None]]:
    """A progress bar. The function that it yields advances it by an epoch. Shows nothing if not verbose."""
    if not verbose:
        yield lambda _text: None
        return
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task("training", total=epochs)
        yield lambda text: bar.update(task, advance=1, description=text)
