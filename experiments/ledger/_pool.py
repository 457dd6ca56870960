"""Many runs on one GPU at a time: processes under MPS, which begin nothing after their time."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from vmcr2.sweep._results import sole_user
from vmcr2.sweep._runs import Outcome
from vmcr2.sweep._workers import Maker, run_in_processes, sharing
from vmcr2.train import UserError

Job = TypeVar("Job")


def lost(name: str, outcome: Outcome) -> bool:
    """Whether a run ended without a result; if so, says why."""
    if outcome.lost is None:
        return False
    print(f"lost: {name}: {outcome.lost}\n{outcome.trace or ''}", flush=True)
    return True


def make_all(
    jobs: Sequence[Job],
    new_maker: Callable[[], Maker[Job]],
    ended: Callable[[Job, Outcome, float], None],
    *,
    folder: Path,
    parallel: int,
    seconds: float,
    threads: int | None = None,
) -> None:
    """Make what is to be made, and hand each outcome over with the seconds since the start, as it comes.

    ``folder`` is where the runs are, and one program uses it at a time. ``threads`` of each process are for jobs that
    stay off the GPU. Ends the program with status 1 if runs were lost: a worker that dies loses its own, and under MPS
    perhaps others'.
    """
    if parallel < 1:
        sys.exit(f"runs at a time must be at least 1, got {parallel}")
    began = time.monotonic()
    left = deque(jobs)
    without_result = 0

    def in_time() -> Iterator[Job]:
        while left and time.monotonic() - began < seconds:
            yield left.popleft()

    def report(job: Job, outcome: Outcome) -> None:
        nonlocal without_result
        without_result += outcome.lost is not None
        ended(job, outcome, time.monotonic() - began)

    try:
        on_cuda = threads is None and torch.cuda.device_count() > 0
        with sole_user(folder), sharing(parallel, on_cuda, threads) as (note, share):
            print(f"{len(left)} runs, {note or 'one after another'}", flush=True)
            run_in_processes(in_time(), new_maker, report, processes=parallel, threads=share)
    except UserError as error:
        sys.exit(str(error))
    if left:
        print(f"out of time, {len(left)} runs left", flush=True)
    if without_result:
        sys.exit(f"{without_result} of {len(jobs)} runs ended without a result; the same command tries them again")
