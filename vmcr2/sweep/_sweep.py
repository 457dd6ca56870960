"""The sweep itself: it makes the runs that have no line yet, and writes a line for each that ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import torch

from ..runs import UserError
from ..training import choose_device
from ._main_guard import end_if_imported
from ._points import Point, changes
from ._results import Record, Results, sole_user
from ._runs import Job, Outcome, Runner, open_for_sweep, prune, prune_leftovers
from ._workers import run_in_processes, sharing


class SweepListener(Protocol):
    """Follows a sweep: is told when it starts and after each run."""

    def started(self, total: int, done: int, note: str | None) -> None:
        """Before the first run: all points, those that have a line already, and how the device is shared."""

    def finished(self, done: int, total: int, record: Record, point: Point) -> None:
        """After every line."""

    def lost(self, point: Point, reason: str) -> None:
        """A run that ended without a result."""


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep."""

    out: Path
    points: list[Point]
    records: dict[str, Record]
    """Lines by the points' identities, those of earlier sweeps in the folder too."""
    lost: dict[str, str]
    """Points without a line, by identity, and why."""

    @property
    def lines(self) -> list[Record]:
        """The lines of this sweep's points, in the points' order."""
        return [self.records[point.id] for point in self.points if point.id in self.records]


def sweep(
    points: Sequence[Point],
    out: Path | str,
    *,
    parallel: int = 1,
    keep_weights: bool = False,
    listener: SweepListener | None = None,
) -> Sweep:
    """Make the run of every point without a line in ``out/results.jsonl``, and write its line when it ends.

    Args:
        points: see :func:`grid`. All must have a hold-out: a sweep never reads the test set.
        out: the sweep's folder; each run has its own in ``out/runs``. Points with a line there are not made again, and
            a run that was stopped continues from its checkpoint.
        parallel: number of processes, one run at a time in each (a script then needs ``if __name__ == "__main__":``).
            1 makes all runs one after another in this process.
        keep_weights: keep weights, checkpoints and evaluation files; otherwise they are removed after each run.
        listener: is told about every line.

    A run that breaks (:class:`vmcr2.runs.TrainingError`) is a result, with ``failed`` in its line. One that ends
    without a result (its worker was killed, its settings do not fit the data) is in ``lost`` and has no line.
    """
    end_if_imported()
    out = Path(out)
    points = list({point.id: point for point in points}.values())
    check_points(points, parallel)
    with sole_user(out):
        results = Results(out)
        records, lost = results.read(), dict[str, str]()
        if not keep_weights:
            prune_leftovers(out)
        left = {folder_of(point, out): point for point in points if point.id not in records}

        def report(job: Job, outcome: Outcome) -> None:
            point = left[job.folder]
            if outcome.lost is not None:
                lost[point.id] = outcome.lost
                keep_trace(out, point, outcome.trace)
                if listener is not None:
                    listener.lost(point, outcome.lost)
                return
            if not keep_weights:  # before the line: a run without a line is looked at again, if a kill comes here
                prune(job.folder)
            records[point.id] = results.append(line_of(point, outcome, job.folder.relative_to(out)))
            if listener is not None:
                listener.finished(sum(p.id in records for p in points), len(points), records[point.id], point)

        with sharing(min(parallel, len(left)), any(map(on_cuda, left.values()))) as (note, threads):
            if listener is not None:
                listener.started(len(points), len(points) - len(left), note)
            jobs = [Job(point.config, folder, keep_weights) for folder, point in left.items()]
            if parallel == 1:
                runner = Runner()
                for job in jobs:
                    report(job, runner(job))
            else:
                run_in_processes(jobs, Runner, report, processes=parallel, threads=threads)
        return Sweep(out, points, records, lost)


def check_points(points: Sequence[Point], parallel: int) -> None:
    """Find mistakes before anything is written."""
    if not points:
        raise UserError("a sweep needs at least one point")
    if parallel < 1:
        raise UserError(f"--parallel must be at least 1, got {parallel}")
    for point in points:
        if point.config.data.holdout == 0:
            raise UserError(
                "holdout must be above 0 in a sweep: points are compared on held-out training images, never on the "
                "test set (`vmcr2 train` with the chosen settings reads that, once)"
            )
        if not on_cuda(point):
            choose_device(point.config.run.device)
    for config in {(p.config.data.name, p.config.data.path): p.config for p in points}.values():
        open_for_sweep(config)


def on_cuda(point: Point) -> bool:
    """Asks the driver's library, not CUDA: the parent of workers must not use the GPU before MPS starts."""
    return point.config.run.device in ("auto", "cuda") and torch.cuda.device_count() > 0


def folder_of(point: Point, out: Path) -> Path:
    """The point's run folder: the one it was started in, whatever the grid was then, or a new one."""
    begun = sorted((out / "runs").glob(f"*-{point.id[:8]}"))
    return begun[0] if begun else out / "runs" / point.folder_name


def line_of(point: Point, outcome: Outcome, folder: Path) -> Record:
    """The line of a run that ended, in a folder of the sweep's."""
    return {
        "id": point.id,
        "recipe": point.config.recipe,
        "point": dict(point.settings),
        "seed": point.config.run.seed,
        "changes": changes(point.config),
        **outcome.figures,
        "folder": str(folder),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def keep_trace(out: Path, point: Point, trace: str | None) -> None:
    """Write down the traceback of an unexpected error, if there is one."""
    if trace is not None:
        (out / "errors").mkdir(exist_ok=True)
        (out / "errors" / f"{point.folder_name}.txt").write_text(trace, encoding="utf-8", errors="backslashreplace")
