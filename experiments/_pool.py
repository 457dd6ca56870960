"""Many runs on one GPU at a time: a pool of processes under MPS, which begins nothing after its time."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
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
    """Make what is to be made, and hand each result over with the seconds since the start, as it comes."""
    began = time.monotonic()
    todo = deque(jobs)
    with multi_process_service() if parallel > 1 else nullcontext("one after another") as note:
        print(f"{len(todo)} runs, {note}", flush=True)
        with ProcessPoolExecutor(parallel, mp_context=multiprocessing.get_context("spawn")) as pool:
            active: dict[Future[Result], Job] = {}
            while todo or active:
                while todo and len(active) < parallel and time.monotonic() - began < seconds:
                    job = todo.popleft()
                    active[pool.submit(make, job)] = job
                if not active:
                    print(f"out of time, {len(todo)} runs left", flush=True)
                    return
                for future in wait(active, return_when=FIRST_COMPLETED).done:
                    ended(active.pop(future), future.result(), time.monotonic() - began)
