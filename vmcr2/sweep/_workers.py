"""Several runs at a time, in worker processes. A worker keeps its data and gets one job after another."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

import torch

from ._main_guard import UNGUARDED, end_if_imported, unguarded
from ._mps import multi_process_service
from ._runs import Outcome, StoppedError

Job = TypeVar("Job")
Maker = Callable[[Job, Callable[[], bool]], Outcome]
"""Does a job, and asks now and then whether it should stop."""

_GRACE_SECONDS = 10.0


def run_in_processes(
    jobs: Iterable[Job],
    new_maker: Callable[[], Maker[Job]],
    report: Callable[[Job, Outcome], None],
    *,
    processes: int,
    threads: int | None = None,
) -> None:
    """Do all jobs, ``processes`` at a time, and report each outcome when it comes, in the caller's process.

    A job is taken from ``jobs`` when a worker is free. Each worker has its own maker as long as it lives. If a worker
    dies, its job is reported as lost, and another worker replaces it. If this ends early (Ctrl-C, an error in
    ``report``), the workers are stopped, and the outcomes that have come by then are reported.
    """
    end_if_imported()
    waiting = iter(jobs)
    workers: list[_Worker[Job]] = []
    try:
        for job in islice(waiting, processes):
            workers.append(_Worker.start(job, new_maker, threads))
        while workers:
            ready = wait([end for worker in workers for end in (worker.connection, worker.process.sentinel)])
            for worker in [w for w in workers if w.connection in ready or w.process.sentinel in ready]:
                outcome = worker.outcome()
                report(worker.job, outcome)
                following = next(waiting, None)
                # after an unexpected error the process is not used again: a CUDA error lasts as long as the process
                if following is not None and outcome.trace is None and worker.alive:
                    worker.hand(following)
                    continue
                worker.stop()
                workers.remove(worker)
                if following is not None:
                    workers.append(_Worker.start(following, new_maker, threads))
    finally:
        for worker in workers:
            worker.ask_to_stop()
        deadline = time.monotonic() + _GRACE_SECONDS
        for worker in workers:
            worker.stop(max(0.0, deadline - time.monotonic()))
        for worker in workers:
            if (late := worker.finished_meanwhile()) is not None:
                report(worker.job, late)


@contextmanager
def sharing(processes: int, on_cuda: bool) -> Iterator[tuple[str | None, int | None]]:
    """How several processes share the machine: (a note for people, threads for each; None leaves it to torch)."""
    if processes <= 1:
        yield None, None
    elif on_cuda:
        with multi_process_service() as note:
            yield f"{processes} runs at a time, {note}", None
    else:
        threads = _even_share(processes)
        each = f", {threads} thread{'s' if threads > 1 else ''} each" if threads is not None else ""
        yield f"{processes} runs at a time{each}", threads


def _even_share(processes: int) -> int | None:
    """An even share of the cores; None if the user has set OMP_NUM_THREADS, which torch reads itself."""
    if "OMP_NUM_THREADS" in os.environ:
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // processes)


@dataclass
class _Worker(Generic[Job]):
    """A process, the parent's end of its pipe, and its current job."""

    process: SpawnProcess
    connection: Connection[Any, Any]
    job: Job

    @classmethod
    def start(cls, job: Job, new_maker: Callable[[], Maker[Job]], threads: int | None) -> _Worker[Job]:
        context = multiprocessing.get_context("spawn")  # a forked process could not use CUDA
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, new_maker, threads), daemon=True)
        with _interrupts_ignored():
            process.start()
        there.close()  # so that the pipe closes when the worker ends
        worker = cls(process, here, job)
        worker.hand(job)
        return worker

    @property
    def alive(self) -> bool:
        return self.process.is_alive()

    def hand(self, job: Job) -> None:
        self.job = job
        with suppress(OSError):  # if the worker has just died, its sentinel says so
            self.connection.send(job)

    def outcome(self) -> Outcome:
        """What the worker sent, or how it ended without sending anything."""
        received = self._receive()
        if received is not None:
            return received
        self.process.join()
        code = self.process.exitcode or 0
        if code == UNGUARDED:
            raise unguarded()
        return Outcome(lost=f"worker ended ({f'signal {-code}' if code < 0 else f'exit code {code}'})", died=True)

    def finished_meanwhile(self) -> Outcome | None:
        """An outcome that came while the sweep was stopped."""
        return self._receive()

    def _receive(self) -> Outcome | None:
        try:
            return self.connection.recv() if self.connection.poll() else None
        except (EOFError, OSError):
            return None

    def ask_to_stop(self) -> None:
        with suppress(OSError):
            self.connection.send(None)

    def stop(self, grace: float = _GRACE_SECONDS) -> None:
        """Ask first: under MPS, killing a process while its kernels run can break other processes."""
        self.ask_to_stop()
        self.process.join(grace)
        for end in (self.process.terminate, self.process.kill):
            if self.process.is_alive():
                end()
                self.process.join(_GRACE_SECONDS)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """While a process starts, which inherits this. Ctrl-C reaches all processes, but only the parent answers it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(connection: Connection[Any, Any], new_maker: Callable[[], Maker[Any]], threads: int | None) -> None:
    """A worker's life: a job, its outcome, the next.

    Anything on the pipe during a run tells it to stop. If the parent ends, the worker ends at once.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if threads is not None:
        torch.set_num_threads(threads)
    make = new_maker()
    with suppress(EOFError, OSError, StoppedError):
        while (job := connection.recv()) is not None:
            connection.send(make(job, connection.poll))


def _end_with_parent() -> None:
    """A run looks at its pipe after some epochs only. Until then it would write to a folder that a new sweep uses."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
