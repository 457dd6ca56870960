"""Errors that mean: another process is gone."""

from __future__ import annotations

import re

import torch.distributed as dist

_GONE = re.compile(r"gloo|Connection (closed|reset)|Broken pipe|Socket closed|NCCL", re.IGNORECASE)


def lost_process(error: BaseException) -> bool:
    """Whether an error of a collective call says that another process has ended."""
    if not dist.is_available() or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or bool(_GONE.search(str(error)))
