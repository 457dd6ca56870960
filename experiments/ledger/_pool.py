"""Many runs on one GPU at a time: processes under MPS, which start nothing that would end after their time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from vmcr2.runs import UserError
from vmcr2.sweep import Maker, Outcome, run_in_processes, sharing, sole_user

Job = TypeVar("Job")


def make_all(
    jobs: Sequence[Job],
    new_maker: Callable[[], Maker[Job]],
    ended: Callable[[Job, Outcome, float], None],
    *,
    folder: Path,
    parallel: int,
    seconds: float,
    takes: Callable[[Job], float] = lambda _: 0.0,
) -> None:
    """Make all jobs, and hand over each outcome as it comes, with the seconds since the start.

    A job starts if it will end before ``seconds`` are over by what it ``takes``; one that will not lets the next go
    first. ``folder`` is where the runs are; one program uses it at a time. If runs were lost the program ends with
    status 1: a worker that dies loses its own run, and under MPS perhaps others'.
    """
    if parallel < 1:
        sys.exit(f"runs at a time must be at least 1, got {parallel}")
    began = time.monotonic()
    left = list(jobs)
    lost = 0

    def in_time() -> Iterator[Job]:
        while True:
            remaining = seconds - (time.monotonic() - began)
            fitting = next((at for at, job in enumerate(left) if takes(job) < remaining), None)
            if fitting is None:
                return
            yield left.pop(fitting)

    def report(job: Job, outcome: Outcome) -> None:
        nonlocal lost
        lost += outcome.lost is not None
        ended(job, outcome, time.monotonic() - began)

    try:
        with sole_user(folder), sharing(parallel, torch.cuda.device_count() > 0) as (note, threads):
            print(f"{len(left)} runs, {note or 'one after another'}", flush=True)
            run_in_processes(in_time(), new_maker, report, processes=parallel, threads=threads)
    except UserError as error:
        sys.exit(str(error))
    if left:
        print(f"out of time, {len(left)} runs left", flush=True)
    if lost:
        sys.exit(f"{lost} of {len(jobs)} runs ended without a result; the same command tries them again")
