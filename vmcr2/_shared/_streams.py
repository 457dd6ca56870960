"""Work beside the main stream: on CUDA a fork and a join, which a captured graph keeps as branches. Elsewhere nothing.

Three rules make it safe without ``record_stream``: what a branch reads stays alive until the join; what it writes is
read only after the join; and a lane waits for the main stream before it is used again.
"""

from __future__ import annotations

from types import TracebackType

import torch
from torch import Tensor

_LANES: dict[tuple[int, int], torch.cuda.Stream] = {}


class Aside:
    """``with Aside(z) as side:`` runs its block beside what follows; ``side.join()`` before the results are read.

    Args:
        tensor: any tensor on the device.
        lane: branches that run at the same time need different lanes.

    >>> with Aside(torch.ones(1)) as side:
    ...     two = torch.ones(1) + 1
    >>> side.join()
    >>> two
    tensor([2.])
    """

    def __init__(self, tensor: Tensor, lane: int = 0) -> None:
        self._lane: torch.cuda.Stream | None = None
        if tensor.is_cuda and not torch.compiler.is_compiling():
            key = (tensor.device.index, lane)
            if key not in _LANES:
                # of high priority: chains of small kernels, which must not queue behind the wide ones of a network
                _LANES[key] = torch.cuda.Stream(tensor.device, priority=-1)  # type: ignore[no-untyped-call]
            self._lane = _LANES[key]
        self._context = torch.cuda.stream(self._lane) if self._lane is not None else None
        self._done: torch.cuda.Event | None = None

    def __enter__(self) -> Aside:
        if self._lane is not None and self._context is not None:
            self._lane.wait_stream(torch.cuda.current_stream(self._lane.device))
            self._context.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lane is not None and self._context is not None:
            self._done = self._lane.record_event()
            self._context.__exit__(kind, error, trace)

    def join(self) -> None:
        """The current stream waits for the block, but not for what its lane does later."""
        if self._lane is not None and self._done is not None:
            torch.cuda.current_stream(self._lane.device).wait_event(self._done)
