"""Decodes many pictures in parallel: one process for each core, answers in the order of the files, bounded memory."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import DataError

if TYPE_CHECKING:
    from ._decode import Seen, Task

Progress = Callable[[str, int, int], None]
"""Called with what is being done ("reading sizes", "packing"), how many are done, and of how many."""
Decoded = tuple["Seen | str", bytes]
"""What was seen of a picture, or why it is broken; and its pixels."""

_FEW, _FEW_BYTES = 200, 1 << 25  # starting workers takes longer than decoding so little
_BATCH, _BATCH_BYTES = 64, 1 << 22
_PIPE = 1 << 20
_MOST_CRASHES = 20
_PROGRAM = Path(__file__).with_name("_decode.py")
CRASHED = "the decoder crashed on it"


def cores() -> int:
    """How many this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def decoded(files: Sequence[tuple[str, int]], task: Task, *, workers: int | None = None) -> Generator[Decoded]:
    """Every picture in the order of ``files``, which are paths and their sizes in bytes.

    A picture that crashes the decoder is reported as broken. Few pictures are decoded here, without processes.
    """
    count = cores() if workers is None else workers
    small = len(files) < _FEW and sum(size for _, size in files) < _FEW_BYTES
    crew = None if small or count < 1 else _crew(task, count)
    if crew is None:
        yield from _decoded_here([path for path, _ in files], task)
        return
    threads = ThreadPoolExecutor(count)
    waiting: deque[Future[list[Decoded]]] = deque()
    try:
        for batch in _batches(files):
            waiting.append(threads.submit(crew.decode, batch))
            if len(waiting) > 3 * count:  # never more: what is finished waits in memory
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:  # also on Ctrl-C, or if the caller stops early
        crew.end()
        threads.shutdown(wait=True, cancel_futures=True)


def decoding_task(shape: tuple[int, int, int], fit: str = "exact", **options: Any) -> Task:
    """A :class:`._decode.Task` for rows of (channels, height, width)."""
    try:
        from ._decode import Task  # here, so that nothing else imports Pillow
    except ImportError as error:
        raise DataError("reading pictures needs Pillow: pip install pillow") from error
    return Task(shape[0], shape[1:], fit, **options)


def _decoded_here(paths: list[str], task: Task) -> Iterator[Decoded]:
    from ._decode import decode

    for path in paths:
        yield decode(path, task)


def _batches(files: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Up to 64 pictures, and fewer if they are large: the last batches must not keep one worker busy alone."""
    batch: list[str] = []
    total = 0
    for path, size in files:
        batch.append(path)
        total += size
        if len(batch) == _BATCH or total >= _BATCH_BYTES:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


class _WorkerEndedError(Exception):
    """The process ended before it answered."""


class _Worker:
    """A process that runs ``_decode.py``."""

    def __init__(self, task: str) -> None:
        # by its path and with -P: nothing of the package or of the user's script is imported
        command = [sys.executable, "-P", str(_PROGRAM), task]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = _started(command, environment)
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a worker was started without pipes")
        self._jobs, self._answers = self._process.stdin, self._process.stdout
        if self._answers.readline() != b"ready\n":
            self.end()
            raise _WorkerEndedError

    def decode(self, paths: list[str]) -> list[Decoded]:
        """What :func:`._decode.decode` gives for every path."""
        from ._decode import Seen

        try:
            self._jobs.write(json.dumps(paths).encode() + b"\n")
            self._jobs.flush()
            line = self._answers.readline()
            told = json.loads(line) if line.endswith(b"\n") else None
            if told is None:
                raise _WorkerEndedError
            total = sum(length for _, length in told)
            pixels = self._answers.read(total)  # at once: one picture at a time takes longer
        except (OSError, ValueError):  # a broken pipe, or one that end() closed
            raise _WorkerEndedError from None
        if len(pixels) != total:
            raise _WorkerEndedError
        answers: list[Decoded] = []
        start = 0
        for seen, length in told:
            answers.append((seen if isinstance(seen, str) else Seen(*seen), pixels[start : start + length]))
            start += length
        return answers

    def end(self) -> None:
        """Now, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._jobs, self._answers):
            with suppress(OSError, RuntimeError):  # another thread may be reading: it sees the end by itself
                pipe.close()


def _started(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    def start(pipesize: int) -> subprocess.Popen[bytes]:
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nothing, env=environment, pipesize=pipesize)

    try:  # room for whole answers: a worker decodes on while this process is busy with another one's
        return start(_PIPE)
    except PermissionError:  # this user has too many large pipes already
        return start(-1)


class _Crew:
    """As many workers as cores. One that crashes is replaced, and its pictures are tried one by one."""

    def __init__(self, task: str, first: _Worker, count: int) -> None:
        self._task = task
        self._free: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()  # None: to be started
        self._all = [first]
        self._lock = threading.Lock()
        self._crashes = 0
        self._ended = False
        self._free.put(first)
        for _ in range(count - 1):
            self._free.put(None)

    def decode(self, paths: list[str]) -> list[Decoded]:
        """A batch, by the next free worker."""
        worker = self._free.get()
        try:
            worker = worker or self._start()
            return worker.decode(paths)
        except _WorkerEndedError:
            if worker is not None:
                worker.end()
            worker = None
            self._count_crash()
        finally:
            self._free.put(worker)
        if len(paths) == 1:
            return [(CRASHED, b"")]
        return [answer for path in paths for answer in self.decode([path])]

    def end(self) -> None:
        """End all workers; threads that wait for one get an error."""
        with self._lock:
            self._ended = True
            for worker in self._all:
                worker.end()

    def _start(self) -> _Worker:
        worker = _Worker(self._task)
        with self._lock:
            if self._ended:
                worker.end()
                raise _WorkerEndedError
            self._all.append(worker)
        return worker

    def _count_crash(self) -> None:
        with self._lock:
            if self._ended:
                raise DataError("decoding was stopped: start it again")
            self._crashes += 1
            if self._crashes > _MOST_CRASHES:
                raise DataError(
                    "the processes that decode pictures crash again and again: is there enough memory? "
                    "Close other programs, or make the pictures smaller"
                )


def _crew(task: Task, count: int) -> _Crew | None:
    """None if processes cannot be started here, for example inside another program."""
    from ._decode import task_text

    text = task_text(task)
    try:
        return _Crew(text, _Worker(text), count)
    except (_WorkerEndedError, OSError, TypeError):  # TypeError: sys.executable is None
        return None
