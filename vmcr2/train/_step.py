"""One training step: a function of fixed shapes over persistent buffers, the same on every device.

Batch index in; augment, forward, dictionary update, backward, optimiser, and the weights' running mean where one is
kept. No host synchronisation inside and no Python number that changes, so that it can be captured in a CUDA graph as it
is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from .._shared import Aside
from ..data import Split, augment_crop, augment_resized_crop, flip_only, normalize, plain
from ._average import WeightAverage, remake_statistics
from ._config import Config
from ._dropout import Dropouts
from ._half import HalfWeights
from ._keeping import keeping_values
from ._numerics import arranged, numerics, uses_bfloat16
from ._objective import Objective, fault_of, look_ahead, surrogate
from ._sharpness import Sharpness
from ._split import epoch_order

Forward = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From all images, the batch's index and the epoch's draw to features."""


class Step:
    """The buffers of a step, and the step."""

    def __init__(
        self,
        config: Config,
        network: nn.Module,
        objective: Objective,
        split: Split,
        batch_size: int,
        device: torch.device,
    ) -> None:
        self.config = config
        self.network = network
        self.objective = objective
        self.device = device
        self.images = split.images.to(device)
        self.labels = split.labels.to(device)
        self.host_labels = split.labels
        """The same, where a look at them does not wait for the device."""
        self.index = torch.zeros(batch_size, dtype=torch.int64, device=device)
        self.draw = torch.zeros((), dtype=torch.int64, device=device)
        self.rate = torch.tensor(config.lr, dtype=torch.float32, device=device)
        self.features = torch.zeros(batch_size, config.dim, device=device)
        """Those of the latest batch, for the log; of the first that broke, once one did."""
        self.seen = torch.zeros_like(self.index)
        """Its labels."""
        self.broken = torch.zeros((), dtype=torch.bool, device=device)
        """Set where features or their gradient were not finite, or the objective found a fault; stays set."""
        self.half = HalfWeights(network) if device.type == "cuda" and uses_bfloat16(config, device) else None
        self.forward: Forward = self.featurize
        """May be replaced by a compiled :meth:`featurize`."""
        self.search = False
        """Whether cuDNN tries out its algorithms in the first steps."""
        self.optimizer = build_optimizer(config, [*network.parameters(), *objective.parameters()], self.rate)
        self.average = WeightAverage(network, objective, config.average) if config.average else None
        self.sharpness = Sharpness(network, objective, config.sharpness) if config.sharpness else None
        self._dropout = Dropouts(network)

    def begin(self, epoch: int) -> bool:
        """Make ready for an epoch; whether its steps differ from those before, so that a recorded one is void."""
        self.network.train()
        self.objective.train()
        self.draw.fill_(epoch)
        return self._dropout.rest(epoch >= self.config.dropout_until * self.config.epochs)

    def featurize(self, images: Tensor, index: Tensor, draw: Tensor) -> Tensor:
        """Augment and embed."""
        x = arranged(augmented(self.config, images, index, draw), self.config)
        return self.half(x) if self.half is not None else cast(Tensor, self.network(x))

    def __call__(self) -> None:
        """Train on the samples of ``index``."""
        with numerics(self.config, self.device, search=self.search):
            labels = self.labels[self.index]
            if self.sharpness is None:
                self._watch(self._differentiate(labels), labels)
            else:
                with self.sharpness.ahead():
                    self._watch(self._differentiate(labels), labels)
                with self.sharpness.uphill():
                    self._check(self._differentiate(labels))
            self.optimizer.step()
            if self.average is not None:
                self.average.update()

    def _differentiate(self, labels: Tensor) -> Tensor:
        """Gradients of every parameter, and an update of the dictionary; the features, with theirs."""
        with Aside(labels) as side:  # R^v does not depend on the features: it is factored while they are made
            ahead = look_ahead(self.objective, labels)
        self.optimizer.zero_grad(set_to_none=True)
        z = self.forward(self.images, self.index, self.draw)
        side.join()
        loss = surrogate(self.objective, self.config, z, labels, ahead)
        z.retain_grad()
        torch.autograd.backward(loss * self.config.loss_scale)
        if self.half is not None:
            self.half.bring_back()
        return z

    @contextmanager
    def measured(self) -> Iterator[None]:
        """The weights that the run is measured by: their running mean where one is kept, put in place for a while."""
        with self.fresh() if self.average is None else self.average.applied(self._see, self._pass()):
            yield

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """BatchNorm's statistics made for the weights as they are, where that is asked for; then the old ones again."""
        if not self.config.fresh_statistics:
            yield
            return
        with keeping_values(list(self.network.buffers())):
            remake_statistics(self.network, self._see, self._pass())
            yield

    def settle(self) -> None:
        """The network as the run keeps it, for good: averaged weights, fresh statistics, its own dropout."""
        if self.average is not None:
            self.average.take_over(self._see, self._pass())
        elif self.config.fresh_statistics:
            remake_statistics(self.network, self._see, self._pass())
        self._dropout.rest(False)

    def _see(self, index: Tensor) -> Tensor:
        # drawn for the epoch after the last: the same whenever it is asked for, also after a resumption
        draw = torch.full_like(self.draw, self.config.epochs)
        with numerics(self.config, self.device):
            return self.featurize(self.images, index, draw)

    def _pass(self) -> list[Tensor]:
        """Whole batches of an epoch."""
        order = epoch_order(len(self.labels), self.config.seed, self.config.epochs).to(self.device)
        return [part for part in torch.split(order, len(self.index)) if len(part) == len(self.index)]

    @torch.no_grad()
    def _watch(self, z: Tensor, labels: Tensor) -> None:
        self.features.copy_(torch.where(self.broken, self.features, z))
        self.seen.copy_(torch.where(self.broken, self.seen, labels))
        self._check(z)

    @torch.no_grad()
    def _check(self, z: Tensor) -> None:
        total = z.sum() if z.grad is None else z.sum() + z.grad.sum()
        self.broken.logical_or_(~torch.isfinite(total)).logical_or_(fault_of(self.objective, self.device))


def build_optimizer(config: Config, parameters: list[nn.Parameter], rate: Tensor) -> torch.optim.Optimizer:
    """Fused, with its rate in a tensor: a captured step reads it anew at every replay."""
    if config.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=config.weight_decay, fused=True)
    return torch.optim.SGD(
        parameters,
        lr=rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov,
        fused=True,
    )


def augmented(config: Config, images: Tensor, index: Tensor, draw: Tensor) -> Tensor:
    """The batch as the network sees it in training."""
    size, seed = config.image_size, config.seed
    if config.augmentation == "crop":
        x = augment_crop(images, index, draw, seed=seed, size=size, padding=config.crop_padding, flip=config.flip)
    elif config.augmentation == "resized-crop":
        x = augment_resized_crop(images, index, draw, seed=seed, size=size, flip=config.flip)
    elif config.augmentation == "flip" and config.flip:
        x = flip_only(images, index, draw, seed=seed, size=size)
    else:
        x = plain(images, index, size=size)
    return _standardised(config, x)


def unaugmented(config: Config, images: Tensor, index: Tensor) -> Tensor:
    """The batch as the network sees it in evaluation."""
    return _standardised(config, plain(images, index, size=config.image_size))


def _standardised(config: Config, x: Tensor) -> Tensor:
    return normalize(x, config.mean, config.std) if config.mean else x
