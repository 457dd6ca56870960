"""A search: trials that Optuna draws from ranges and choices, shared by all workers on one database."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._shared import shown
from ..runs import Config, UserError
from ._main_guard import end_if_imported
from ._points import Point
from ._results import Record, Results, one_of_many, writing
from ._runs import Job, Outcome, open_for_sweep, prune as remove_weights, prune_leftovers
from ._space import Axis, Space
from ._sweep import Sweep, SweepListener, check_points, folder_of, keep_trace, line_of, on_cuda
from ._table import score
from ._workers import run_in_processes, sharing

if TYPE_CHECKING:
    from ._study import Claim, Study

STUDY = "vmcr2"
"""The usual name of a search in its database."""
_LOOK_SECONDS = 1.0
_LOST_IN_A_ROW = 3
"""After so many runs without a result a worker stops: something is wrong with its machine."""


def search(
    base: Config,
    space: Mapping[str, Axis],
    out: Path | str,
    *,
    trials: int,
    storage: str | None = None,
    study: str = STUDY,
    prune: bool = True,
    parallel: int = 1,
    keep_weights: bool = False,
    listener: SweepListener | None = None,
    say: Callable[[str], None] | None = None,
    config_of: Callable[[list[str]], Config] | None = None,
) -> Sweep:
    """Look for the settings with the best held-out accuracy; several workers may share the trials.

    Every process that calls this with the same ``storage`` and ``study`` takes its share. It returns when all trials
    are done, by whomever. The trials of a worker that died are made again.

    Args:
        base: what the values change.
        space: by the setting's name, a :class:`Range` or a list of values. ``objective`` may be one of them.
        out: this worker's folder. Workers may share it.
        trials: how many, of all workers together.
        storage: the URL of a database; by default SQLite in ``out/search.db``.
        study: the name of the search in the database.
        prune: stop runs early that are worse than the median of others at the same tenth of their epochs.
        parallel: number of processes of this worker, as in :func:`sweep`.
        keep_weights: likewise.
        listener: is told about the runs of this worker.
        say: is told, in sentences, what people should know, such as that it waits for others.
        config_of: makes a configuration of ``key=value`` texts; by default they are changes of ``base``.
    """
    end_if_imported()
    out = Path(out)
    if importlib.util.find_spec("optuna") is None:
        raise UserError("a search needs Optuna: pip install 'vmcr2[search]'")
    if trials < 1:
        raise UserError(f"--trials must be at least 1, got {trials}")
    whole = Space(base, space, config_of)
    corners = [_measured(point, prune) for point in whole.corners()]
    check_points(corners, parallel)
    from ._database import DATABASE_ERRORS
    from ._study import Study

    with one_of_many(out):
        url = storage or f"sqlite:///{(out / 'search.db').resolve()}"
        try:
            with Study(url, study, _described(whole, corners[0]), trials) as shared:
                worker = _Worker(shared, whole, out, url, prune, keep_weights, listener, say or (lambda _: None))
                return worker.work(parallel, on_cuda(corners[0]))
        except DATABASE_ERRORS as error:
            why = str(error.__cause__ or error).splitlines()[0]
            raise UserError(
                f"the database of the search does not answer ({why}): give the same command again to continue"
            ) from error


def _described(space: Space, corner: Point) -> dict[str, Any]:
    """What all workers must agree on: the axes, the other settings, and the data."""
    others = {name: shown(value) for name, value in corner.config.deciding().items() if name not in space.axes}
    if space.objectives:  # each has its own recipe: one is enough to see that somebody has changed a setting
        others["recipe"] = corner.config.recipe
    checksum = open_for_sweep(corner.config).train_checksum
    return {"space": space.described(), "settings": others, "training data": checksum}


def _measured(point: Point, prune: bool) -> Point:
    """A trial is compared with others at tenths of its run, so it must be measured there."""
    every, needed = point.config.run.eval_every, math.ceil(point.config.optim.epochs / 10)
    if not prune or every <= needed:  # 0 is the same with a hold-out
        return point
    return replace(point, config=point.config.replace(eval_every=needed))


class _Worker:
    """One process that takes trials, one after another or several at a time."""

    def __init__(
        self,
        study: Study,
        space: Space,
        out: Path,
        url: str,
        prune: bool,
        keep_weights: bool,
        listener: SweepListener | None,
        say: Callable[[str], None],
    ) -> None:
        self.study, self.space, self.out, self.url = study, space, out, url
        self.prune, self.keep_weights, self.listener, self.say = prune, keep_weights, listener, say
        self.results = Results(out)
        self.claims: dict[Path, Claim] = {}
        self.lost_in_a_row = 0

    def work(self, parallel: int, on_gpu: bool) -> Sweep:
        """Until every trial has a result, or this worker cannot go on."""
        from ._trials import TrialRunner

        runner = partial(TrialRunner, self.url, self.study.name, self.prune)
        self.study.try_lost_again()
        if not self.keep_weights:
            prune_leftovers(self.out)
        with sharing(min(parallel, self.study.most - self.study.done), on_gpu) as (note, threads):
            if self.listener is not None:
                self.listener.started(self.study.most, self.study.done, note)
            here = runner()
            while True:
                jobs = _Ready(self._jobs)
                if parallel == 1:
                    for job in jobs:
                        self._report(job, here(job))
                else:
                    run_in_processes(jobs, runner, self._report, processes=parallel, threads=threads)
                if self._ends() or not self._wait_for_others():
                    break
        if self.study.exhausted:
            self.say("there is nothing new to try in these ranges and choices")
        return self._swept()

    def _ends(self) -> bool:
        if self.lost_in_a_row >= _LOST_IN_A_ROW:
            self.say(f"{self.lost_in_a_row} runs in a row ended without a result: this worker takes no more trials")
            return True
        return False

    def _wait_for_others(self) -> bool:
        """Until a trial becomes free, because its worker died. Returns False when none can: all are done."""
        said = False
        while (left := self.study.at_work()) and not self.study.claimable():
            if not said:
                self.say(f"waits for other workers, which have {left} of the trials: it makes them if a worker dies")
                said = True
            time.sleep(_LOOK_SECONDS)
        return left > 0

    def _jobs(self) -> Job | None:
        """The next trial as a run to make; None if there is none now."""
        from ._trials import TrialJob

        while self.lost_in_a_row < _LOST_IN_A_ROW:
            claim = self.study.claim(lambda trial: _measured(self.space.draw(trial), self.prune))
            if claim is None:
                return None
            known = self.results.read().get(claim.point.id)
            if known is not None:  # of a grid, or of a worker that was killed after it had written the line
                self._finish(claim, known, None)
                continue
            folder = folder_of(claim.point, self.out)
            self.claims[folder] = claim
            return TrialJob(claim.point.config, folder, self.keep_weights, claim.number)
        return None

    def _report(self, job: Job, outcome: Outcome) -> None:
        claim = self.claims[job.folder]
        if outcome.lost is not None:
            self.study.lose(claim, outcome.lost, died=outcome.died)
            keep_trace(self.out, claim.point, outcome.trace)
            self.lost_in_a_row += not outcome.died
            if self.listener is not None:
                again = "; it is tried again" if outcome.died else ""
                self.listener.lost(claim.point, outcome.lost + again)
            return
        self.lost_in_a_row = 0
        record = line_of(claim.point, outcome, job.folder.relative_to(self.out))
        record |= {"trial": claim.number, "worker": self.study.worker}
        if record.get("stopped_by") == "callback":
            record["pruned"] = True
        self._finish(claim, record, job.folder)

    def _finish(self, claim: Claim, record: Record, folder: Path | None) -> None:
        """Tell the database, then write the line: so a line is of a trial that counts."""
        value = None if "failed" in record or record.get("pruned") else score(record)
        if not self.study.finish(claim, record, value):
            self.say(f"{claim.point.label}: another worker has taken this trial over; its result here does not count")
            return
        if folder is not None:
            if not self.keep_weights:  # before the line, as a sweep does
                remove_weights(folder)
            with writing(self.out):
                record = self.results.append(record)
        if self.listener is not None:
            self.listener.finished(self.study.done, self.study.most, record, claim.point)

    def _swept(self) -> Sweep:
        """What all workers have found."""
        points: dict[str, Point] = {}
        records: dict[str, Record] = {}
        lost: dict[str, str] = {}
        for trial, record, why in self.study.results():
            if record is None and why is None:
                continue  # another worker is at it, and this one takes no more
            point = _measured(self.space.point(trial.params), self.prune)
            points[point.id] = point
            if record is not None:
                records[point.id] = record
            elif why is not None:
                lost[point.id] = why
        return Sweep(self.out, list(points.values()), records, lost)


class _Ready(Iterator[Job]):
    """The jobs that can be had now. It may end and go on later: a trial becomes free when its worker dies."""

    def __init__(self, take: Callable[[], Job | None]) -> None:
        self._take = take

    def __next__(self) -> Job:
        job = self._take()
        if job is None:
            raise StopIteration
        return job
