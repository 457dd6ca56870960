"""A share of a batch, computed and drawn as one process with the whole batch would.

BatchNorm takes its statistics over the rows of all processes. What is random for each row (dropout, noise, dropped
paths) is drawn for all rows on every process, from the same state of random numbers, and each takes its own rows. So a
sample's draw does not depend on the number of processes, and one process draws what it always drew.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ._norm import global_batch_norm

_ENTERED: ContextVar[WholeBatch | None] = ContextVar("entered", default=None)
_DROPOUTS = (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d)
_DRAWN_LIKE = (torch.randn_like, torch.rand_like)


def in_whole_batch() -> bool:
    """Whether a network computes its share of a batch now: kernels that see only the share must not be used."""
    return _ENTERED.get() is not None


def rows_before() -> int:
    """The rows of the batch before this process's share: kernels that draw for a row by its place add it; else 0."""
    entered = _ENTERED.get()
    return 0 if entered is None else entered.start


class WholeBatch(TorchFunctionMode):
    """While it is entered, torch's functions on a share of a batch's rows do what they do on the whole batch.

    Args:
        share: this process's rows.
        total: all rows. A tensor may have several rows for each of the batch's.
    """

    def __init__(self, share: slice, total: int) -> None:
        super().__init__()
        self.start, self.rows, self.total = share.start, share.stop - share.start, total

    def __enter__(self) -> Any:
        self._before = _ENTERED.set(self)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        _ENTERED.reset(self._before)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Torch calls it with every function."""
        kwargs = kwargs or {}
        if func is functional.batch_norm:
            return global_batch_norm(*args, **kwargs)
        if func in _DROPOUTS:
            return self._dropout(func, *args, **kwargs)
        if func in _DRAWN_LIKE and not kwargs and self._fits(args[0]):
            return self._drawn(args[0], func)
        if func is torch.Tensor.bernoulli_ and not kwargs and self._fits(args[0]):
            return args[0].copy_(self._drawn(args[0], lambda whole: whole.bernoulli_(*args[1:])))
        return func(*args, **kwargs)

    def _dropout(self, func: Any, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0 or not self._fits(x):
            return func(x, p, training, inplace)  # type: ignore[no-any-return]
        return x * self._drawn(x, lambda whole: func(whole.fill_(1.0), p, True))

    def _fits(self, x: Tensor) -> bool:
        return x.ndim > 0 and len(x) > 0 and len(x) % self.rows == 0

    def _drawn(self, like: Tensor, draw: Callable[[Tensor], Tensor]) -> Tensor:
        """The own rows of what is drawn for all rows, in the memory order that one process would have."""
        each = len(like) // self.rows
        last = like.ndim == 4 and not like.is_contiguous() and like.is_contiguous(memory_format=torch.channels_last)
        whole = torch.empty(
            (each * self.total, *like.shape[1:]),
            dtype=like.dtype,
            device=like.device,
            memory_format=torch.channels_last if last else torch.contiguous_format,
        )
        return draw(whole)[each * self.start : each * (self.start + self.rows)]
