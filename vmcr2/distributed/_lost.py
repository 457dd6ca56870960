"""Another process of the run is gone: how that is noticed, and how this one ends then."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.distributed as dist

_GONE = re.compile(r"gloo|Connection (closed|reset)|Broken pipe|Socket closed|NCCL", re.IGNORECASE)


@contextmanager
def losses_as(kind: type[Exception], count: int, message: Callable[[], str]) -> Iterator[None]:
    """Raise ``kind(message())`` where one of ``count`` processes notices that another has ended.

    Other errors pass, and so does a ``kind`` that was raised inside: it says already what happened.
    """
    try:
        yield
    except RuntimeError as error:
        if count == 1 or isinstance(error, kind) or not _means_a_loss(error):
            raise
        _outlast_torchrun()
        raise kind(message()) from error


def _means_a_loss(error: RuntimeError) -> bool:
    """Whether an error of a collective call says that another process has ended."""
    return dist.is_available() and (isinstance(error, dist.DistError) or bool(_GONE.search(str(error))))


def _outlast_torchrun() -> None:
    """Do not end by torchrun's SIGTERM before this process has said why it ends.

    torchrun notices the loss too, and on a busy machine its signal came first. The process ends in a moment by itself,
    and torchrun kills what does not.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
