"""Runs a reader on many inputs, with limits of memory and time: quick by random changes, long by atheris."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import NamedTuple

ROOM = 1 << 30
"""Bytes that a reader may take beyond Python, torch and itself."""
SECONDS = 20
"""For one input."""
READERS = tuple(sorted(path.stem.removeprefix("reader_") for path in Path(__file__).parent.glob("reader_*.py")))
sys.path.insert(0, str(Path(__file__).parent.parent / "data"))  # where the formats of the data sets are written
_OF_THE_STANDARD_LIBRARY = ("tarfile", "gzip", "pickletools", "zipfile", "csv")


class Outcome(NamedTuple):
    """Of the quick profile."""

    runs: int
    accepted: int
    """inputs that were read without an error"""
    refused: int
    """inputs that were refused by a documented error"""


class TooSlowError(Exception):
    """An input took more than the limit."""


def reader(name: str) -> ModuleType:
    """The module of a reader."""
    return importlib.import_module(f"fuzz.reader_{name}")


def limit_memory(room: int = ROOM) -> None:
    """From here on; a reader that takes more gets a MemoryError, which is not documented."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


@contextlib.contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise TooSlowError(f"an input took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def scratch() -> str | None:
    """Where files are written: in memory, if there is such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def attempt(module: ModuleType, data: bytes) -> bool:
    """Whether an input was accepted. False if a documented error refused it; any other error goes on."""
    folder = Path(tempfile.mkdtemp(dir=scratch()))
    try:
        module.run(data, folder)
    except module.DOCUMENTED:
        return False
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return True


def quick(name: str, runs: int, seed: int = 0) -> Outcome:
    """The seeds, all of which must be accepted, and as many changed ones."""
    from fuzz.mutation import mutants

    module = reader(name)
    seeds = module.seeds()
    for number, data in enumerate(seeds):
        if not attempt(module, data):
            raise AssertionError(f"{name} refuses its own seed {number}")
    accepted = 0
    for number, data in enumerate(mutants(seeds, runs, seed)):
        try:
            with _time_limit(SECONDS), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                accepted += attempt(module, data)
        except Exception as error:
            kept = Path(tempfile.gettempdir()) / f"fuzz-{name}-{seed}-{number}"
            kept.write_bytes(data)
            raise AssertionError(f"{name}: input {number} of seed {seed}, kept in {kept}: {error!r}") from error
    return Outcome(runs, accepted, runs - accepted)


def long(name: str, options: list[str], corpus: Path) -> None:
    """Without end, or as libFuzzer's options say (``-runs=100000``); inputs that reach new code are kept in corpus."""
    import atheris
    import numpy
    import torch  # noqa: F401 - before the instruments: only our readers and what they read with are looked into

    for module in _OF_THE_STANDARD_LIBRARY:
        sys.modules.pop(module, None)
    with atheris.instrument_imports(include=["vmcr2", *_OF_THE_STANDARD_LIBRARY], enable_loader_override=False):
        for module in _OF_THE_STANDARD_LIBRARY:
            importlib.import_module(module)
        harness = reader(name)
    warnings.simplefilter("ignore")
    numpy.seterr(all="ignore")
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(harness.seeds()):
        (corpus / f"seed{number}").write_bytes(data)
        attempt(harness, data)  # what is imported late is imported before memory is limited
    limit_memory()

    def once(data: bytes) -> None:
        attempt(harness, data)

    # seeds are kept: compiled parsers show no lines, so a good file and a damaged one may look alike
    flags = ["-keep_seed=1", "-reduce_inputs=0", "-max_len=20000", "-print_final_stats=1", "-detect_leaks=0"]
    flags += [f"-timeout={SECONDS}", "-rss_limit_mb=4096"]
    atheris.Setup([sys.argv[0], *flags, *options, str(corpus)], once)
    atheris.Fuzz()
