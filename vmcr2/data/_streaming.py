"""Images that stay on the host: a batch comes to the device while the one before it is trained on.

The step reads a batch from one buffer on the device, so a captured step stays valid. Behind it stand a second buffer on
the device, which the next batch is copied into, and two buffers of pinned memory on the host, which images are
collected in. So collecting, copying and computing run at the same time, each for another batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._errors import DataError
from ._pictures import Pictures
from ._settings import DataSettings
from ._split import Split

_LARGEST_SHARE = 0.5  # of the free memory of a GPU: network, activations and a captured step need the rest


class StreamedPictures(Pictures):
    """As :class:`Pictures`, for images that do not fit on the device: they may be a memory-mapped file.

    ``bring`` must be called with a batch's index before its training step. ``expect`` starts to load a batch early.

    Args:
        split: uint8 images on the host, and their labels.
        settings: the section ``data`` of a configuration.
        batch_size: rows of a training batch.
        seed: of the augmentation.
        device: where batches go.
    """

    def __init__(
        self, split: Split, settings: DataSettings, *, batch_size: int, seed: int, device: torch.device
    ) -> None:
        super().__init__(split, settings, seed=seed, device=device)
        shape = (batch_size, *split.images.shape[1:])
        self._batch = torch.zeros(shape, dtype=torch.uint8, device=device)
        self._rows = torch.arange(batch_size, device=device)
        self._pipe = _Pipe(shape, device) if device.type == "cuda" else None

    def _placed(self, split: Split, settings: DataSettings, device: torch.device) -> Tensor:
        return split.images  # they stay where they are

    def bring(self, index: Tensor) -> None:
        """Put the images of ``index``, on the host, where the next step reads them."""
        if self._pipe is None:
            torch.index_select(self.images, 0, index, out=self._batch[: len(index)])
        else:
            if not self._pipe.holds(index):
                self._pipe.load(self.images, index)
            self._pipe.hand_over(self._batch)

    def expect(self, index: Tensor) -> None:
        """Start to bring the images of ``index``, while the device computes."""
        if self._pipe is not None:
            self._pipe.load(self.images, index)

    def training_batch(self, index: Tensor, draw: Tensor, others: Tensor | None = None) -> Tensor:
        """The images that were brought, augmented as those of ``index``."""
        if others is not None:
            raise DataError(
                "pictures that are streamed cannot be mixed by several processes: each has its own part of a batch. "
                "Set stream=no, or mix=none"
            )
        x = self._augmented(self._batch, self._rows[: len(index)], draw, index)
        return self._mixed(x, None, index, draw) if self.mixing else x

    def plain_batch(self, index: Tensor) -> Tensor:
        """The images of ``index`` without augmentation, from the host."""
        found = self.images[index.cpu()].to(self._batch.device)
        return self._plain(found, torch.arange(len(index), device=found.device))


class _Pipe:
    """From the host's images to the device, one batch ahead, on a stream of its own."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self._pinned = [torch.empty(shape, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self._copied: list[Any] = [None, None]
        """Events: the copy out of each pinned buffer is done, and it may be filled again."""
        self._next = torch.empty(shape, dtype=torch.uint8, device=device)
        self._taken: Any = None
        """An event: the step's buffer has what ``_next`` held, and ``_next`` may be filled again."""
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # the buffer's memory may be in use by work that was started before, and by a copy when it is given back
        self._stream.wait_stream(torch.cuda.current_stream(device))
        self._next.record_stream(self._stream)
        self._device = device
        self._loaded: Tensor | None = None
        self._turn = 0

    def holds(self, index: Tensor) -> bool:
        """Whether these are the images that were loaded last, and not yet handed over."""
        return self._loaded is not None and torch.equal(self._loaded, index)

    def load(self, images: Tensor, index: Tensor) -> None:
        """Collect the images, and copy them without waiting."""
        turn = self._turn = 1 - self._turn
        if self._copied[turn] is not None:
            self._copied[turn].synchronize()
        pinned = self._pinned[turn][: len(index)]
        torch.index_select(images, 0, index, out=pinned)
        with torch.cuda.stream(self._stream):
            if self._taken is not None:
                self._stream.wait_event(self._taken)
            self._next[: len(index)].copy_(pinned, non_blocking=True)
            self._copied[turn] = self._stream.record_event()
        self._loaded = index.clone()

    def hand_over(self, batch: Tensor) -> None:
        """Copy what was loaded to the step's buffer, on the step's stream."""
        current = torch.cuda.current_stream(self._device)
        current.wait_event(self._copied[self._turn])
        batch.copy_(self._next)
        self._taken = current.record_event()
        self._loaded = None


def fits_on(device: torch.device, images: Tensor) -> bool:
    """Whether the images can be kept on the device beside a network. A CPU reads a mapped file as it is."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return images.numel() * images.element_size() <= _LARGEST_SHARE * free
