"""Many runs on one GPU at a time: a pool of processes under MPS, which begins nothing after its time."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from typing import TypeVar

from vmcr2.sweep._mps import multi_process_service

Job = TypeVar("Job")
Result = TypeVar("Result")


def make_all(
    jobs: Sequence[Job],
    make: Callable[[Job], Result],
    ended: Callable[[Job, Result, float], None],
    *,
    parallel: int,
    seconds: float,
) -> None:
    """Make what is to be made, and hand each result over with the seconds since the start, as it comes.

    A worker that dies takes its pool with it, and nobody knows over which job: those that were being made are made
    again, one by one, each in a pool of its own. One that kills that too is given up.
    """
    began = time.monotonic()
    todo = deque(jobs)
    with multi_process_service() if parallel > 1 else nullcontext("one after another") as note:
        print(f"{len(todo)} runs, {note}", flush=True)

        def some(jobs: deque[Job], parallel: int) -> list[Job]:
            """Make jobs until none is left, time is up or a worker dies; those over which one may have died."""
            with ProcessPoolExecutor(parallel, mp_context=multiprocessing.get_context("spawn")) as pool:
                active: dict[Future[Result], Job] = {}
                while jobs or active:
                    while jobs and len(active) < parallel and time.monotonic() - began < seconds:
                        job = jobs.popleft()
                        active[pool.submit(make, job)] = job
                    if not active:
                        return []
                    for future in wait(active, return_when=FIRST_COMPLETED).done:
                        try:
                            result = future.result()
                        except BrokenExecutor:
                            return list(active.values())
                        ended(active.pop(future), result, time.monotonic() - began)
            return []

        while todo and time.monotonic() - began < seconds:
            for suspect in some(todo, parallel):
                print(f"a worker died; made again alone: {suspect}", flush=True)
                if some(deque([suspect]), 1):
                    print(f"given up, it kills its worker: {suspect}", flush=True)
        if todo:
            print(f"out of time, {len(todo)} runs left", flush=True)
