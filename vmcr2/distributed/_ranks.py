"""The processes of one run: who they are, which rows of a batch are whose, and what they tell each other.

Every process knows the whole batch's index. It computes the features of its own rows, all features are gathered, and
the rest of the step is that of one process. So ranks agree without being told, and rank 0 alone writes files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from .._shared import UserError
from ._gather import gather_known
from ._whole_batch import WholeBatch

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_TIMEOUT = timedelta(hours=2)  # rank 0 may pack pictures meanwhile; torchrun notices a process that dies at once
_BOTH = "cpu:gloo,cuda:nccl"
Made = TypeVar("Made")


class EndedByAnother(SystemExit):
    """This process ends because another has an error, and that one says it."""

    def __init__(self) -> None:
        super().__init__(1)


class Ranks:
    """The processes that train one run together; ``ALONE`` is one process without a process group.

    Args:
        active: whether there is a process group. A group of one process communicates too, with itself.
    """

    def __init__(self, *, active: bool) -> None:
        self.active = active
        self.rank, self.count = (dist.get_rank(), dist.get_world_size()) if active else (0, 1)
        self._told: tuple[Any, Tensor] | None = None

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which writes files and speaks to people."""
        return self.rank == 0

    def place(self, device: torch.device) -> torch.device:
        """The GPU of this process, where ``device`` is one."""
        if not self.active or device.type != "cuda":
            return device
        own = int(os.environ.get("LOCAL_RANK", self.rank)) % torch.cuda.device_count()
        torch.cuda.set_device(own)
        return torch.device("cuda", own)

    def can_capture(self, device: torch.device) -> bool:
        """Whether a CUDA graph can hold what the processes exchange: nccl's kernels, but nothing of gloo."""
        return not self.active or (device.type == "cuda" and "cuda:nccl" in dist.get_backend_config())

    # rows

    def sizes(self, total: int) -> list[int]:
        """The rows of each process, of so many in all; the first ones have one more where that is not even."""
        return [total // self.count + (rank < total % self.count) for rank in range(self.count)]

    def share(self, total: int) -> slice:
        """The rows of this process.

        >>> ALONE.share(7)
        slice(0, 7, None)
        """
        sizes = self.sizes(total)
        start = sum(sizes[: self.rank])
        return slice(start, start + sizes[self.rank])

    def own(self, rows: Tensor) -> Tensor:
        """Those of this process."""
        return rows[self.share(len(rows))] if self.count > 1 else rows

    def gather(self, rows: Tensor, total: int) -> Tensor:
        """The rows of all, in order, from this process's share of ``total``.

        The gradient that comes back is of the own rows alone: the sum over processes is that of one process.
        """
        return gather_known(rows, self.sizes(total)) if self.active else rows

    def whole_batch(self, total: int) -> AbstractContextManager[None]:
        """Inside, a network that sees a share of ``total`` rows computes and draws as it would with all of them."""
        return WholeBatch(self.share(total), total) if self.count > 1 else nullcontext()

    # decisions

    def any(self, flag: bool) -> bool:
        """Whether it is true anywhere."""
        if self.count == 1:
            return flag
        found = torch.tensor(int(flag))
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found)

    def any_lately(self, flag: bool) -> bool:
        """The same, of the call before this one: nobody waits for the answer. Every process must ask as often."""
        if self.count == 1:
            return flag
        if self._told is not None:
            handle, found = self._told
            handle.wait()
            self._told = None
            if bool(found):
                return True
        found = torch.tensor(int(flag))
        self._told = dist.all_reduce(found, dist.ReduceOp.MAX, async_op=True), found
        return False

    def from_first(self, make: Callable[[], Made]) -> Made:
        """What rank 0 makes, for all. Where that raises an error, all end."""
        if self.count == 1:
            return make()
        sent: list[Any] = [None, False]
        try:
            if self.leads:
                sent = [make(), True]
        finally:  # in an error too: the others wait for it
            dist.broadcast_object_list(sent, src=0)
        if not sent[1]:
            raise EndedByAnother
        return sent[0]  # type: ignore[no-any-return]

    def in_turn(self, make: Callable[[Any], Made], tell: Callable[[Made], Any] = lambda made: None) -> Made:
        """What every process makes for itself, rank 0 first: the others find its caches. An error ends all.

        Rank 0 makes it of None, the others of what ``tell`` says about rank 0's.
        """
        if self.count == 1:
            return make(None)
        made: list[Made] = []
        told: Any = None
        for first in (True, False):
            error: Exception | None = None
            if self.leads == first:
                try:
                    made.append(make(told))
                except Exception as raised:  # told to the others, then raised
                    error = raised
            self._end_with(error)
            told = self.from_first(lambda: tell(made[0])) if first else told
        return made[0]

    def _end_with(self, error: Exception | None) -> None:
        """Nothing, unless some process has an error: rank 0 raises it, the others end."""
        told: list[str | None] = [None] * self.count
        dist.all_gather_object(told, None if error is None else f"{error}")
        failed = next((rank for rank, text in enumerate(told) if text is not None), None)
        if failed is None:
            return
        if not self.leads:
            raise EndedByAnother from error
        raise error if error is not None else UserError(f"rank {failed}: {told[failed]}")

    def meet_to_stop(self) -> None:
        """Wait for all processes, before each of them ends."""
        if self.count > 1:
            meet("the stop")

    @torch.no_grad()
    def copy_first(self, tensors: Iterable[Tensor]) -> None:
        """Rank 0's values for all, in place."""
        if self.count > 1:
            for tensor in tensors:  # gloo has no bool
                dist.broadcast(tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor, src=0)


ALONE = Ranks(active=False)


@contextmanager
def joined() -> Iterator[Ranks]:
    """The processes that torchrun started, while it is entered; ``ALONE`` for any other process."""
    if not all(name in os.environ for name in _TORCHRUN) or not dist.is_available():
        yield ALONE
        return
    if dist.is_initialized():
        if "cpu:" not in dist.get_backend_config():
            raise UserError(f"the process group must serve CPUs too: init_process_group({_BOTH!r})")
        yield Ranks(active=True)
        return
    from torch.distributed.rendezvous import rendezvous  # not in every build of torch

    store, rank, count = next(rendezvous("env://", timeout=_TIMEOUT))
    # torchrun may keep its store when it starts the processes again, with the addresses of those that are gone
    store = dist.distributed_c10d.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(_backend(), store=store, rank=rank, world_size=count, timeout=_TIMEOUT)
    yield Ranks(active=True)
    leave_together()  # not after an error: it would wait for a process that is gone


def leave_together() -> None:
    """End the process group once every process is here."""
    meet("the end")
    dist.destroy_process_group()


def meet(place: str) -> None:
    """Wait until every process is here, each once.

    A process that closes its connections while another still reads what it sent can break that one's last exchange. So
    they meet in the store, which is not one of these connections.
    """
    store: Any = dist.distributed_c10d._get_default_store()
    if store.add(place, 1) == dist.get_world_size():
        store.set(f"all at {place}", "yes")
    with suppress(RuntimeError):  # the process that has the store may be gone: then all were here
        store.wait([f"all at {place}"], _TIMEOUT)


def _backend() -> str:
    """nccl for GPUs, unless processes share one, which nccl refuses."""
    if not torch.cuda.is_available() or not dist.is_nccl_available():
        return "gloo"
    here = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    return _BOTH if here <= torch.cuda.device_count() else "gloo"
