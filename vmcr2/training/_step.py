"""One training step: a function of fixed shapes over persistent buffers, the same on every device.

Batch index in; augment, forward, the objective's update, backward, optimiser, and the weights' running mean where one
is kept. It does not synchronise with the device, and no Python number in it changes, so a CUDA graph can capture it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from .._shared import Aside
from ..distributed import ALONE, GradientSum, Ranks
from ..objectives import Objective
from ._average import WeightAverage
from ._backbone_rate import BackboneRate
from ._bfloat16_weights import BFloat16Weights
from ._dropout import Dropouts
from ._look_ahead import LookAhead
from ._numerics import Numerics
from ._samples import Samples, embed, epoch_order
from ._settings import OptimSettings
from ._sgd import SGD

Forward = Callable[[Tensor, Tensor], Tensor]
"""From the batch's index and the epoch's draw to features."""
Optimizer = SGD | torch.optim.Optimizer


class Step:
    """The buffers of a step, and the step.

    Args:
        network: on its device.
        objective: likewise.
        samples: the training set.
        optim: how to optimise.
        batch_size: rows of a batch.
        dim: the number of features.
        seed: of the order in which BatchNorm's statistics are recomputed.
        numerics: device and precision.
        weights: of the samples, (N,), for objectives that take them.
        optimizer: of an earlier step over the same parameters, to continue with; by default a new one.
        ranks: the processes that share every batch.
    """

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        samples: Samples,
        optim: OptimSettings,
        *,
        batch_size: int,
        dim: int,
        seed: int,
        numerics: Numerics,
        weights: Tensor | None = None,
        optimizer: Optimizer | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.ranks = ranks
        self.network, self.objective, self.samples = network, objective, samples
        self.optim, self.seed, self.numerics, self.weights = optim, seed, numerics, weights
        device = numerics.device
        self.index = torch.zeros(batch_size, dtype=torch.int64, device=device)
        self._ahead = LookAhead(objective, samples.labels, torch.zeros_like(self.index))
        self._mixes = samples.mixing
        self._ahead.idle = samples.mixing
        self.draw = torch.zeros((), dtype=torch.int64, device=device)
        self.rate = torch.tensor(optim.lr, dtype=torch.float32, device=device)
        self.features = torch.zeros(batch_size, dim, device=device)
        """Those of the latest batch, for the log; of the first that broke, once one did."""
        self.seen = torch.zeros_like(self.index)
        """Its labels."""
        self.broken = torch.zeros((), dtype=torch.bool, device=device)
        """Set where features or their gradient were not finite, or the objective found a fault; stays set."""
        self._backbone = BackboneRate(network, optim.backbone_rate, self.rate)
        self.half = BFloat16Weights(network) if device.type == "cuda" and numerics.bfloat16 else None
        self.forward: Forward = self.featurize
        """May be replaced by a compiled :meth:`featurize`."""
        self.search = False
        """Whether cuDNN tries its algorithms in the first steps."""
        self.parameters: list[Tensor] = [*network.parameters(), *objective.module.parameters()]
        self._sum_gradients = GradientSum(ranks, network.parameters(), objective.module.parameters())
        self.optimizer = optimizer or build_optimizer(optim, self.parameters, self.rate, self._backbone)
        for group in self.optimizer.param_groups:  # of an earlier step too, whose settings may have been others
            rate = self._backbone.rate if group.get("backbone") else self.rate
            group.update(lr=rate, weight_decay=optim.weight_decay if group["decays"] else 0.0)
        self.average = WeightAverage(network, objective.module, optim.average) if optim.average else None
        self._dropout = Dropouts(network)

    def begin(self, epoch: int) -> bool:
        """Prepare for an epoch. Returns whether its steps differ from those before, so that a recorded one is void."""
        self.network.train()
        self.objective.module.train()
        self.draw.fill_(epoch)
        self.ranks.copy_first(self.objective.module.buffers())  # on a GPU rounding may have parted them
        self.objective.begin(epoch)
        others = self._mix(epoch < self.optim.mix_until * self.optim.epochs)
        return self._dropout.switch(off=epoch >= self.optim.dropout_until * self.optim.epochs) or others

    def _mix(self, wanted: bool) -> bool:
        """Mix samples or not, if the run mixes them at all. Returns whether that changes anything."""
        wanted = wanted and self._mixes
        changed = wanted != self.samples.mixing
        self.samples.mixing = wanted
        self._ahead.idle = wanted  # memberships are drawn with the samples: nothing is known early
        return changed

    def featurize(self, index: Tensor, draw: Tensor) -> Tensor:
        """Augment and embed this process's share of the batch."""
        with self.ranks.whole_batch(len(index)):
            return self._featurize(index, draw)

    def _featurize(self, index: Tensor, draw: Tensor) -> Tensor:
        if self.half is None:
            return cast(Tensor, self.network(self._inputs(index, draw)))
        with Aside(index) as casting:
            self.half.refresh()
        x = self._inputs(index, draw)
        casting.join()
        return self.half(x)

    def _inputs(self, index: Tensor, draw: Tensor) -> Tensor:
        """This process's share of the batch as the network takes it."""
        own = self.ranks.own
        others = own(index.roll(1)) if self.samples.mixing and self.ranks.count > 1 else None
        return self.numerics.cast(self.samples.training_batch(own(index), draw, others))

    def take(self, index: Tensor, following: Tensor, *, foreseen: bool = False) -> None:
        """The batch of the next step, and the one after it, to look ahead to.

        ``foreseen``: this batch was the one after it at the last call, and nothing but the step changed the objective.
        """
        self.index.copy_(index)
        self._ahead.expect(following, foreseen=foreseen)

    def prepare(self) -> None:
        """What the step needs from before. A captured one cannot do it: its engine calls this first."""
        if self._ahead.due:
            with self.numerics.applied():
                self._ahead.prepare(self.index)

    def forget(self) -> None:
        """A recorded step was made."""
        self._ahead.forget()

    def __call__(self) -> None:
        """Train on the samples of ``index``."""
        self.prepare()
        with self.numerics.applied(search=self.search):
            labels = self.samples.labels[self.index]
            z = self._differentiate(labels)
            with Aside(labels, lane=1) as watching:  # beside the optimiser
                self._watch(z, labels)
            self._sum_gradients()
            self._backbone.follow()
            self.optimizer.step()
            if self.average is not None:
                self.average.update()
            watching.join()
            self._ahead.join()

    def _differentiate(self, labels: Tensor) -> Tensor:
        """Gradients of every parameter, and the objective's update; the features, with their gradient."""
        self.optimizer.zero_grad()
        z = self.ranks.gather(self.forward(self.index, self.draw), len(self.index))
        weights = None if self.weights is None else self.weights[self.index]
        targets = labels
        if self.samples.mixing:
            targets = self.samples.memberships(self.index, labels, self.draw, self.objective.num_classes)
        loss = self.objective.surrogate(z, targets, self._ahead.take(), weights)
        self._ahead.start()
        z.retain_grad()
        torch.autograd.backward(loss * self.objective.settings.loss_scale)
        if self.half is not None:
            self.half.bring_back()
        return z

    @torch.no_grad()
    def _watch(self, z: Tensor, labels: Tensor) -> None:
        """Keep the batch for the log, unless one before it broke, and look for what is not finite."""
        self.features.copy_(torch.where(self.broken, self.features, z))
        self.seen.copy_(torch.where(self.broken, self.seen, labels))
        total = z.sum() if z.grad is None else z.sum() + z.grad.sum()
        self.broken.logical_or_(~torch.isfinite(total))
        if (fault := self.objective.fault) is not None:
            self.broken.logical_or_(fault)

    @torch.no_grad()
    def broke(self) -> bool:
        """Whether any step so far broke, or left weights that are not finite. Waits for the device."""
        lengths = torch.stack(torch._foreach_norm(self.parameters))
        return self.ranks.any(bool(self.broken | ~torch.isfinite(lengths).all()))

    def embed(self) -> Tensor:
        """Features of the whole training set in evaluation mode."""
        return embed(self.network, self.samples, self.numerics, self.ranks)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """The weights that the run is measured by: their running mean, where one is kept. Restores them on exit."""
        if self.average is None:
            yield
            return
        with self.average.applied(self._see, self._pass()):
            yield

    def settle(self) -> None:
        """The network as the run keeps it: averaged weights, its own dropout, and nothing frozen."""
        if self.average is not None:
            self.average.take_over(self._see, self._pass())
        self._dropout.switch(off=False)
        self._backbone.release()

    def _see(self, index: Tensor) -> Tensor:
        # drawn for the epoch after the last: the same whenever it is asked for, also after a resumption
        draw = torch.full_like(self.draw, self.optim.epochs)
        self.samples.bring(self.ranks.own(index).cpu())
        mixed = self.samples.mixing
        self.samples.mixing = False  # the network is measured on samples that are not mixed
        try:
            with self.numerics.applied():
                return self.featurize(index, draw)
        finally:
            self.samples.mixing = mixed

    def _pass(self) -> list[Tensor]:
        """Whole batches of an epoch."""
        order = epoch_order(len(self.samples), self.seed, self.optim.epochs).to(self.numerics.device)
        return [part for part in torch.split(order, len(self.index)) if len(part) == len(self.index)]


def build_optimizer(optim: OptimSettings, parameters: list[Tensor], rate: Tensor, backbone: BackboneRate) -> Optimizer:
    """Fused, with its rate in a tensor: a captured step reads it at every replay. Its groups decay, or do not."""
    groups = _decay_groups([own for own in parameters if not backbone.has(own)], optim)
    if not backbone.frozen:
        slower = _decay_groups([own for own in parameters if backbone.has(own)], optim)
        groups += [{**group, "backbone": True} for group in slower]
    if optim.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=rate, fused=True)
    return SGD(groups, momentum=optim.momentum, nesterov=optim.nesterov)


def _decay_groups(parameters: list[Tensor], optim: OptimSettings) -> list[dict[str, Any]]:
    """Weights of layers decay. Vectors, which are biases and BatchNorm's parameters, do so with ``decay_all`` only."""
    decaying = [own for own in parameters if optim.decay_all or own.ndim > 1]
    others = [own for own in parameters if not (optim.decay_all or own.ndim > 1)]
    groups = [{"params": decaying, "decays": True}, {"params": others, "decays": False}]
    return [group for group in groups if group["params"]]
