"""Errors that mean that another process is gone, and how this one ends then."""

from __future__ import annotations

import os
import re
import signal
import threading

import torch.distributed as dist

_GONE = re.compile(r"gloo|Connection (closed|reset)|Broken pipe|Socket closed|NCCL", re.IGNORECASE)


def lost_process(error: BaseException) -> bool:
    """Whether an error of a collective call says that another process has ended."""
    if not dist.is_available() or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or bool(_GONE.search(str(error)))


def outlast_torchrun() -> None:
    """After a loss: do not end by torchrun's SIGTERM before this process has said why it ends.

    torchrun notices the loss too, and on a busy machine its signal came first. The process ends in a moment by itself,
    and torchrun kills what does not.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
