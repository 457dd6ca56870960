"""A search that several workers share through a database: who does which trial, and what came out. It imports Optuna.

Optuna draws the values and stores the trials. Its workers may die, so a trial is taken by rules that need no worker but
oneself: see :mod:`._slots`.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import optuna
from optuna.trial import FrozenTrial, TrialState

from ..runs import UserError
from . import _database
from ._database import DATABASE_ERRORS, open_database, quiet
from ._points import Point
from ._results import Record
from ._sampler import SeededSampler
from ._slots import ATTEMPT, DEATHS, LOST, ROOT, STOPPED, VOID, Slot, slots
from ._space import differences

_SPEC, _WORKER, _ID, _RECORD = "search", "worker", "id", "record"
_REPEATS = 20
"""So many draws in a row that give nothing new end a search: there is nothing left to draw."""
_ANNOUNCED_SECONDS = 5.0


class Claim(NamedTuple):
    """A trial that this worker does."""

    number: int
    point: Point


class Study:
    """This worker's view of the search. Enter it: then its trials count as alive."""

    def __init__(self, url: str, name: str, spec: Mapping[str, Any], most: int) -> None:
        self.most, self._spec = most, json.loads(json.dumps(spec))
        self.name, self.worker = name, f"{socket.gethostname()}:{os.getpid()}"
        self._storage = open_database(url)
        with quiet():
            self._study = optuna.create_study(
                storage=self._storage,
                study_name=name,
                direction="maximize",
                load_if_exists=True,
                sampler=SeededSampler(),
            )
        self._study_id = self._storage.get_study_id_from_name(name)
        self._held: dict[int, Claim] = {}
        self._silent_since: dict[int, float] = {}
        self._ended = threading.Event()
        self._check_spec()
        self.exhausted = False

    def __enter__(self) -> Study:
        self._pulse = threading.Thread(target=self._beat_on, daemon=True)
        self._pulse.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give back what is not done: others, or the same command again, can do it at once."""
        self._ended.set()
        self._pulse.join()
        for claim in list(self._held.values()):
            with suppress(*DATABASE_ERRORS):
                self._end(claim, TrialState.FAIL, {STOPPED: True})
        self._storage.engine.dispose()

    def slots(self) -> list[Slot]:
        """The plan as it stands."""
        return slots(self._study.get_trials(deepcopy=False), self.most)

    def claim(self, draw: Callable[[optuna.Trial], Point]) -> Claim | None:
        """Take a trial, or None if there is nothing to do now. ``draw`` makes its point."""
        refused, misfits = 0, list[UserError]()
        while refused < _REPEATS:
            self._check_spec()
            if not self.claimable():
                return None
            with quiet():
                trial = self._study.ask()
            number = self._id(trial.number)
            self._storage.record_heartbeat(number)
            trial.set_user_attr(_WORKER, self.worker)
            if not self._counts(trial.number):
                self._void(trial, "another worker was quicker")
                continue
            try:
                with quiet():
                    point = draw(trial)
            except UserError as error:
                refused += 1
                misfits.append(error)
                self._void(trial, str(error))
                continue
            trial.set_user_attr(_ID, point.id)
            if self._repeats(trial.number, point):
                refused += 1
                self._void(trial, "an earlier trial has the same settings")
                continue
            claim = Claim(trial.number, point)
            self._held[number] = claim
            return claim
        if len(misfits) == refused:  # nothing that was drawn can be trained
            raise misfits[0]
        self.exhausted = True
        return None

    def finish(self, claim: Claim, record: Record, value: float | None) -> bool:
        """A trial has a result. Without a value it was stopped early, or broke. Returns whether it was still ours."""
        state = TrialState.PRUNED if value is None else TrialState.COMPLETE
        return self._end(claim, state, {_RECORD: record}, value)

    def lose(self, claim: Claim, why: str, *, died: bool) -> None:
        """A trial has no result. If its process died, it is tried again; else it would end the same way."""
        self._end(claim, TrialState.FAIL, {} if died else {LOST: why})

    def try_lost_again(self) -> None:
        """Give every slot that was lost another attempt, as a command does that is given again."""
        for slot in self.slots():
            if slot.lost is not None:
                self._another_attempt(slot, deaths=0)

    def results(self) -> list[tuple[FrozenTrial, Record | None, str | None]]:
        """The trial of each slot, its record if it has one, and why there will be none."""
        return [(slot.last, slot.last.user_attrs.get(_RECORD), slot.lost) for slot in self.slots()]

    @property
    def done(self) -> int:
        """Slots with a result."""
        return sum(slot.filled for slot in self.slots())

    def at_work(self) -> int:
        """Slots that wait for a result, of any worker."""
        return sum(not slot.filled and slot.lost is None for slot in self.slots())

    def claimable(self) -> bool:
        """Whether there is a trial to take: one that nobody has drawn yet, or one whose worker died."""
        self._revive_dead()
        found = self.slots()
        new = len(found) < self.most and not self.exhausted
        return new or any(slot.last.state == TrialState.WAITING for slot in found)

    # ---- rules

    def _counts(self, number: int) -> bool:
        return any(slot.last.number == number for slot in self.slots())

    def _revive_dead(self) -> None:
        """Another attempt for slots whose workers died or gave them back."""
        self._hear_the_silent()
        for number in list(self._held):  # a computer that has slept must not take its own trials for dead
            self._storage.record_heartbeat(number)
        with quiet():
            optuna.storages.fail_stale_trials(self._study)
        for slot in self.slots():
            if slot.needs_attempt:
                self._another_attempt(slot, slot.deaths)

    def _another_attempt(self, slot: Slot, deaths: int) -> None:
        last = slot.last
        attempt = {ROOT: slot.root, ATTEMPT: int(last.user_attrs.get(ATTEMPT, 0)) + 1, DEATHS: deaths}
        with quiet():
            self._study.add_trial(
                optuna.create_trial(
                    state=TrialState.WAITING, params=last.params, distributions=last.distributions, user_attrs=attempt
                )
            )

    def _hear_the_silent(self) -> None:
        """A worker that died right after it took a trial never said that it was alive, so Optuna would wait for ever.

        Say it once for such a worker, after some time. Then its silence counts.
        """
        for slot in self.slots():
            last = slot.last
            if last.state != TrialState.RUNNING or _WORKER in last.user_attrs:
                continue
            since = self._silent_since.setdefault(last.number, time.monotonic())
            if time.monotonic() - since > _database.GRACE_SECONDS:
                self._storage.record_heartbeat(self._id(last.number))
                self._silent_since[last.number] = float("inf")

    def _repeats(self, number: int, point: Point) -> bool:
        """Whether an earlier slot has the same point. Trials that were drawn at this moment may not have said yet."""
        deadline = time.monotonic() + _ANNOUNCED_SECONDS
        while True:
            found = self.slots()
            own = next((slot for slot in found if slot.last.number == number), None)
            earlier = [slot for slot in found if own is not None and slot.root < own.root]
            if any(_ids(slot) == {point.id} for slot in earlier):
                return True
            unsaid = [slot for slot in earlier if slot.last.state == TrialState.RUNNING and not _ids(slot)]
            if not unsaid or time.monotonic() > deadline:
                return False
            time.sleep(0.05)

    def _check_spec(self) -> None:
        """The first worker writes down what is searched; all others must search the same."""
        begun = bool(self._study.get_trials(deepcopy=False))  # first: whoever begins has written it down before
        there = self._study.user_attrs.get(_SPEC)
        if there is None and not begun:
            self._study.set_user_attr(_SPEC, self._spec)
        elif there is None:
            raise UserError(f"the study {self.name!r} in this database is not of vmcr2: choose another --study NAME")
        elif there != self._spec:
            raise UserError(
                f"the study {self.name!r} in this database searches something else: {differences(there, self._spec)}. "
                "Give the same settings, or another --study NAME"
            )

    # ---- the database

    def _end(self, claim: Claim, state: TrialState, notes: Mapping[str, Any], value: float | None = None) -> bool:
        number = self._id(claim.number)
        self._held.pop(number, None)
        try:
            for key, note in notes.items():
                self._storage.set_trial_user_attr(number, key, note)
            with quiet():
                self._study.tell(claim.number, value, state)
        except (optuna.exceptions.UpdateFinishedTrialError, ValueError):  # another worker took it for dead
            return False
        return True

    def _void(self, trial: optuna.Trial, why: str) -> None:
        trial.set_user_attr(VOID, why)
        with quiet():
            self._study.tell(trial.number, state=TrialState.FAIL)

    def _id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)

    def _beat_on(self) -> None:
        while not self._ended.wait(_database.BEAT_SECONDS):
            for number in list(self._held):
                try:
                    self._storage.record_heartbeat(number)
                except DATABASE_ERRORS:
                    continue  # a database that is away for a moment: the grace is several beats long


def _ids(slot: Slot) -> set[str]:
    return {attempt.user_attrs[_ID] for attempt in slot.attempts if _ID in attempt.user_attrs}
