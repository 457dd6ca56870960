"""Where a search draws its values from: Optuna's TPE, seeded by the place of the trial in the search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from ._database import quiet
from ._slots import ROOT


class SeededSampler(BaseSampler):
    """TPE whose draws depend on how many were drawn before and on what is known, not on who draws.

    So workers that start at the same moment draw different values, and a search can be repeated.
    """

    def __init__(self) -> None:
        self._inner = self._seeded(0)

    @staticmethod
    def _seeded(seed: int) -> TPESampler:
        # group: settings that only one objective has; constant_liar: what others are at counts as bad until it is known
        with quiet():
            return TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Start the draws of this trial."""
        others = study.get_trials(deepcopy=False)
        # what is tried again is not drawn
        self._inner = self._seeded(sum(t.number < trial.number and ROOT not in t.user_attrs for t in others))
        self._inner.before_trial(study, trial)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """As TPE does."""
        return self._inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As TPE does."""
        return self._inner.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """As TPE does."""
        return self._inner.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """As TPE does."""
        self._inner.after_trial(study, trial, state, values)
