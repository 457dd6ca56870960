"""Counters in a device's memory, by which a program of BatchNorm's kernels knows that it is the last to finish."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

_COUNTERS: WeakKeyDictionary[nn.Module, Tensor] = WeakKeyDictionary()


def counters_of(norm: nn.Module, blocks: int, device: torch.device) -> Tensor:
    """Zeros for the kernels that count their finished programs: (forward and backward, blocks of channels).

    Each norm has its own. So two norms may run at the same time on two streams; one norm's calls follow one another in
    any case, because of its running statistics. A launch leaves zeros behind.
    """
    counters = _COUNTERS.get(norm)
    if counters is None or counters.device != device:
        # at least four, 16 bytes: Triton compiles a kernel once more for a pointer that is not aligned so
        counters = torch.zeros(2, max(blocks, 4), dtype=torch.int32, device=device)
        if not (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            _COUNTERS[norm] = counters  # while a graph is captured nothing runs: such zeros are the graph's own
    return counters
