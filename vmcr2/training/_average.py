"""A running mean of the weights. A run is measured by it and keeps it; its steps continue from the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from .._shared import fits_triton
from ._restoring import restoring_momenta, restoring_values, running_norms

See = Callable[[Tensor], object]
"""Shows the network the training images of an index, as a training step does."""


class WeightAverage:
    """Float32 means of the parameters of a network and of its objective (cross-entropy's head), over a run's steps.

    Args:
        network: on its device; its parameters must stay where they are.
        objective: likewise.
        decay: the part of the mean that a step keeps; at most (1 + t)/(10 + t) after t steps, so that the first weights
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
        """Steps done. On the device, because a replayed step must count too."""
        self._by_kernel: Callable[[], None] | None = self._kernel()

    def _kernel(self) -> Callable[[], None] | None:
        """One pass over all means, where Triton can make it."""
        weights, means = list(self.weights.values()), list(self.means.values())
        if not all(fits_triton(mean) and _alike(weight, mean) for weight, mean in zip(weights, means, strict=True)):
            return None
        from ._average_kernel import MovingMeans

        made = MovingMeans(weights, means, self.steps, self.decay)  # type: ignore[no-untyped-call]
        return cast(Callable[[], None], made.update)

    @torch.no_grad()
    def update(self) -> None:
        """Move the means towards the weights of a step. It is part of the step, so it never waits for the device."""
        self.steps.add_(1)
        if self._by_kernel is not None:
            self._by_kernel()
            return
        share = (9 / (self.steps + 10)).clamp_min(1 - self.decay)  # 1 − min(decay, (1 + t)/(10 + t))
        means = list(self.means.values())
        change = torch._foreach_sub(list(self.weights.values()), means)
        torch._foreach_mul_(change, share)
        torch._foreach_add_(means, change)

    @contextmanager
    def applied(self, see: See, batches: Sequence[Tensor]) -> Iterator[None]:
        """The means in place of the weights, with BatchNorm statistics for them. Restores the old values on exit."""
        with restoring_values([*self.weights.values(), *self.network.buffers()]):
            self.take_over(see, batches)
            yield

    @torch.no_grad()
    def take_over(self, see: See, batches: Sequence[Tensor]) -> None:
        """As :meth:`applied`, but permanently."""
        torch._foreach_copy_(list(self.weights.values()), list(self.means.values()))
        remake_statistics(self.network, see, batches)

    def state_dict(self) -> dict[str, Tensor]:
        """The means and the count of steps."""
        return {"steps": self.steps, **self.means}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Back from :meth:`state_dict`, in place."""
        for name, value in self.state_dict().items():
            value.copy_(state[name])


def _alike(weight: Tensor, mean: Tensor) -> bool:
    """Whether both lie in memory in the same order, without gaps."""
    dense = mean.is_contiguous() or mean.is_contiguous(memory_format=torch.channels_last)
    return weight.dtype == torch.float32 and dense and weight.stride() == mean.stride()


@torch.no_grad()
def remake_statistics(network: nn.Module, see: See, batches: Sequence[Tensor]) -> None:
    """Recompute BatchNorm's statistics for the present weights: means over the batches, each seen in training mode.

    Layers that training mode leaves in evaluation mode are frozen, and keep theirs. It restores the state of the random
    numbers: measuring a run does not change it.
    """
    was_training = network.training
    network.train()
    norms = [norm for norm in running_norms(network) if norm.training]
    if not norms:
        network.train(was_training)
        return
    for norm in norms:
        # to 0, not to torch's variance of 1: adding and subtracting 1 would cost a small variance its digits
        for statistic in (norm.running_mean, norm.running_var, norm.num_batches_tracked):
            if statistic is not None:
                statistic.zero_()
    try:
        with restoring_momenta(norms), torch.random.fork_rng({batch.device for batch in batches if batch.is_cuda}):
            for count, batch in enumerate(batches, start=1):
                for norm in norms:  # a mean over batches; torch reads None as this, the fused kernels do not
                    norm.momentum = 1 / count
                see(batch)
    finally:
        network.train(was_training)
