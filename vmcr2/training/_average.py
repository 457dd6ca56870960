"""A running mean of the weights: what a run is measured by and keeps, while its steps go on from the raw ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ._restoring import restoring_momenta, restoring_values, running_norms

See = Callable[[Tensor], object]
"""Shows the network the training images of an index, as a training step does."""


class WeightAverage:
    """Float32 means of the parameters of a network and of its objective (cross-entropy's head), over a run's steps.

    Args:
        network: with its parameters where they will stay.
        objective: likewise.
        decay: what a step leaves of the mean; at most (1 + t)/(10 + t) after t steps, so that the weights of the start
            are soon forgotten.
    """

    def __init__(self, network: nn.Module, objective: nn.Module, decay: float) -> None:
        self.network = network
        self.decay = decay
        parts = {"model": network, "objective": objective}
        self.weights = {
            f"{part}.{name}": parameter
            for part, module in parts.items()
            for name, parameter in module.named_parameters()
        }
        self.means = {name: weight.detach().to(torch.float32, copy=True) for name, weight in self.weights.items()}
        self.steps = torch.zeros((), dtype=torch.int64, device=next(iter(self.means.values())).device)
        """Steps done. On the device, since a captured step counts as it is replayed."""

    @torch.no_grad()
    def update(self) -> None:
        """Move the means towards the weights that a step has made; part of the step, so without synchronisation."""
        self.steps.add_(1)
        share = (9 / (self.steps + 10)).clamp_min(1 - self.decay)  # 1 − min(decay, (1 + t)/(10 + t))
        means = list(self.means.values())
        change = torch._foreach_sub(list(self.weights.values()), means)
        torch._foreach_mul_(change, share)
        torch._foreach_add_(means, change)

    @contextmanager
    def applied(self, see: See, batches: Sequence[Tensor]) -> Iterator[None]:
        """The means in the weights' place, with statistics of BatchNorm made for them; then all is put back."""
        with restoring_values([*self.weights.values(), *self.network.buffers()]):
            self.take_over(see, batches)
            yield

    @torch.no_grad()
    def take_over(self, see: See, batches: Sequence[Tensor]) -> None:
        """As :meth:`applied`, for good."""
        torch._foreach_copy_(list(self.weights.values()), list(self.means.values()))
        remake_statistics(self.network, see, batches)

    def state_dict(self) -> dict[str, Tensor]:
        """The means and the count of steps."""
        return {"steps": self.steps, **self.means}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Back from :meth:`state_dict`, in place."""
        for name, value in self.state_dict().items():
            value.copy_(state[name])


@torch.no_grad()
def remake_statistics(network: nn.Module, see: See, batches: Sequence[Tensor]) -> None:
    """BatchNorm's statistics anew for the weights as they are: means over the batches, each seen in training mode.

    Random numbers are as if it had not been: a run that is measured on its way stays the run that it was.
    """
    norms = running_norms(network)
    if not norms:
        return
    was_training = network.training
    network.train()
    for norm in norms:
        # to 0 and not to torch's variance of 1: added and taken away again, it would cost a small one its digits
        for statistic in (norm.running_mean, norm.running_var, norm.num_batches_tracked):
            if statistic is not None:
                statistic.zero_()
    try:
        with restoring_momenta(norms), torch.random.fork_rng({batch.device for batch in batches if batch.is_cuda}):
            for count, batch in enumerate(batches, start=1):
                for norm in norms:  # a mean over batches; None says so to torch, but not to the fused kernels
                    norm.momentum = 1 / count
                see(batch)
    finally:
        network.train(was_training)
