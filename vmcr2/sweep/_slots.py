"""The plan of a search as its database tells it: places for trials, and the attempts to fill each. It imports Optuna.

A search of N trials has N slots. A slot is opened by a trial, and is filled when an attempt has a result. If a worker
dies, the slot gets another attempt with the same values. All workers read the same database and follow the same rules,
so nobody must be asked: of trials that would be too many, the one with the lower number stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from optuna.trial import FrozenTrial, TrialState

ROOT, ATTEMPT, DEATHS = "root", "attempt", "deaths"
VOID = "void"
"""Why a trial does not count."""
STOPPED = "stopped"
"""A worker has given it back."""
LOST = "lost"
"""Why it ended without a result, though its worker lives."""
MOST_DEATHS = 3
"""A trial at which so many workers died, perhaps because of its memory, is not tried again."""


class Slot(NamedTuple):
    """A place in the plan."""

    root: int
    """The number of its first trial."""
    attempts: list[FrozenTrial]

    @property
    def last(self) -> FrozenTrial:
        """The attempt that counts."""
        return self.attempts[-1]

    @property
    def filled(self) -> bool:
        """Whether it has a result."""
        return self.last.state in (TrialState.COMPLETE, TrialState.PRUNED)

    @property
    def deaths(self) -> int:
        """How many workers died at it."""
        died = self.last.state == TrialState.FAIL and not {STOPPED, LOST} & self.last.user_attrs.keys()
        return int(self.last.user_attrs.get(DEATHS, 0)) + died

    @property
    def lost(self) -> str | None:
        """Why it is not tried again by itself; None if it is filled, or somebody is at it or will be."""
        if self.last.state != TrialState.FAIL:
            return None
        if LOST in self.last.user_attrs:
            return str(self.last.user_attrs[LOST])
        return f"{self.deaths} workers died at it" if self.deaths >= MOST_DEATHS else None

    @property
    def needs_attempt(self) -> bool:
        """Whether it needs another attempt."""
        return self.last.state == TrialState.FAIL and self.lost is None


def slots(trials: Sequence[FrozenTrial], most: int) -> list[Slot]:
    """The first ``most`` slots, in the order of their first trials."""
    found: dict[int, dict[int, FrozenTrial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.number):
        if VOID in trial.user_attrs:
            continue
        root = int(trial.user_attrs.get(ROOT, trial.number))
        # of two workers that both start the same attempt, the lower number stays
        found.setdefault(root, {}).setdefault(int(trial.user_attrs.get(ATTEMPT, 0)), trial)
    return [Slot(root, [attempts[number] for number in sorted(attempts)]) for root, attempts in sorted(found.items())][
        :most
    ]
