"""Which samples a run trains on in an epoch, batch after batch."""

from __future__ import annotations

from torch import Tensor

from ..data import ClassBatches
from ..objectives import Objective
from ..training import OptimSettings, epoch_order, order_generator


class EpochOrder:
    """The order of samples in every epoch: a function of seed and epoch, so that a resumed run needs no state for it.

    With ``samples_per_class`` every batch has so many samples of each of its classes: see :class:`ClassBatches`.
    """

    def __init__(self, labels: Tensor, optim: OptimSettings, seed: int) -> None:
        self.total, self.seed = len(labels), seed
        self._batches: ClassBatches | None = None
        if each := optim.samples_per_class:
            self.batch_size = optim.batch_size
            self._batches = ClassBatches(labels, self.batch_size // each, each)
            self.steps = self._batches.steps
        else:
            self.batch_size = min(optim.batch_size, self.total)
            self.steps = self.total // self.batch_size

    def __call__(self, epoch: int) -> Tensor:
        """The samples of the epoch. What is behind the last whole batch is not trained on."""
        if self._batches is None:
            return epoch_order(self.total, self.seed, epoch)
        return self._batches.order(order_generator(self.seed, epoch))

    def make_room(self, objective: Objective) -> None:
        """A captured step has room for what a plain batch may have. Here the rows and the classes are known."""
        if self._batches is not None:
            objective.make_room(self._batches.samples, self._batches.classes)
