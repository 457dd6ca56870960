"""Many runs on one GPU at a time: processes under MPS, which begin nothing after their time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import TypeVar

from vmcr2.sweep._mps import multi_process_service
from vmcr2.sweep._runs import Outcome
from vmcr2.sweep._workers import Maker, run_in_processes

Job = TypeVar("Job")


def make_all(
    jobs: Sequence[Job],
    new_maker: Callable[[], Maker[Job]],
    ended: Callable[[Job, Outcome, float], None],
    *,
    parallel: int,
    seconds: float,
    threads: int | None = None,
) -> None:
    """Make what is to be made, and hand each outcome over with the seconds since the start, as it comes."""
    began = time.monotonic()
    left = deque(jobs)

    def in_time() -> Iterator[Job]:
        while left and time.monotonic() - began < seconds:
            yield left.popleft()

    def report(job: Job, outcome: Outcome) -> None:
        ended(job, outcome, time.monotonic() - began)

    with multi_process_service() if parallel > 1 else nullcontext("one after another") as note:
        print(f"{len(left)} runs, {note}", flush=True)
        run_in_processes(in_time(), new_maker, report, processes=parallel, threads=threads)
    if left:
        print(f"out of time, {len(left)} runs left", flush=True)
