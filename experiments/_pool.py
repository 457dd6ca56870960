"""Many runs on one GPU at a time: a pool of processes under MPS, which begins nothing after its time."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext, suppress
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
                with suppress(BrokenExecutor):
                    while jobs or active:
                        while jobs and len(active) < parallel and time.monotonic() - began < seconds:
                            future = pool.submit(make, jobs[0])  # which may say that the pool is broken
                            active[future] = jobs.popleft()
                        if not active:
                            break
                        done = wait(active, return_when=FIRST_COMPLETED).done
                        for future in sorted(done, key=lambda one: one.exception() is not None):  # what is good first
                            result = future.result()
                            ended(active.pop(future), result, time.monotonic() - began)
            return list(active.values())

        while todo and time.monotonic() - began < seconds:
            suspects = deque(some(todo, parallel))
            while suspects and time.monotonic() - began < seconds:
                print(f"a worker died; made again alone: {suspects[0]}", flush=True)
                if some(deque([suspect := suspects.popleft()]), 1):
                    print(f"given up, it kills its worker: {suspect}", flush=True)
            todo.extend(suspects)
        if todo:
            print(f"out of time, {len(todo)} runs left", flush=True)
