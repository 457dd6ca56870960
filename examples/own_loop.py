"""Your own PyTorch loop: gradient accumulation (a batch too large for memory) and GradScaler (float16).

    python examples/own_loop.py

A coding rate belongs to a set of points: the mean of the losses of micro-batches is not the loss of the batch. So call
the loss once per optimiser step, with the features of the whole batch. `checkpoint` keeps no activations: the backward
pass computes them again, one micro-batch at a time. It prints what a network learns from digits (ΔR, and test accuracy
by the nearest subspace) from the whole batch at once, from its parts, in float16, and by the usual accumulation.
"""

from __future__ import annotations

import copy

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import vmcr2

TRAIN, BATCH = 1200, 256
# micro-batches, whether their losses are added, the scaler's first factor: too large, so that it skips some steps
WAYS = {"whole batch": (1, False, 0.0), "micro-batches": (8, False, 0.0)}
WAYS |= {"float16": (8, False, 2.0**24), "usual accumulation": (8, True, 0.0)}


class Loop:
    """A network, its loss and its optimiser; in float16 with a ``factor`` above 0 for the scaler."""

    def __init__(self, loss: nn.Module, seed: int, *, dtype: torch.dtype = torch.float32, factor: float = 0.0) -> None:
        torch.manual_seed(seed)
        self.loss, self.skipped = loss.to(dtype), 0
        self.network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).to(dtype)
        self.optimiser = torch.optim.AdamW(self.network.parameters(), lr=2e-3)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=factor, enabled=factor > 0)

    def step(self, images: Tensor, labels: Tensor, parts: int, usual: bool = False) -> None:
        """One step of the optimiser and one of the dictionary, or none of either."""
        before, factor = copy.deepcopy(self.loss.state_dict()), self.scaler.get_scale()
        with torch.autocast("cpu", torch.float16, enabled=self.scaler.is_enabled()):
            z = [checkpoint(self.network, part, use_reentrant=False) for part in images.chunk(parts)]
        loss = self.usual_loss(z, labels) if usual else self.loss(torch.cat(z), labels)
        self.optimiser.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimiser)  # the bound below is on true gradients, not on scaled ones
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        if self.scaler.get_scale() < factor:  # a gradient was infinite, and the optimiser did not move:
            self.loss.load_state_dict(before)  # neither do the dictionary and the codes
            self.skipped += 1

    def usual_loss(self, z: list[Tensor], labels: Tensor) -> Tensor:
        """Wrong here: rates of a few points each, and the dictionary moves once for each part."""
        return torch.stack(list(map(self.loss, z, labels.chunk(len(z))))).mean()


def main(seed: int = 0, steps: int = 60) -> dict[str, tuple[float, float, int]]:
    """ΔR of the training images, test accuracy and skipped steps, for each loss and way."""
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    images, found = images.float() / 16, {}
    for loss in (vmcr2.VMCR2Loss(10, 64, atoms_per_class=6), vmcr2.MCR2Loss(10)):
        for way, (parts, usual, factor) in WAYS.items():
            loop, name = Loop(copy.deepcopy(loss), seed, factor=factor), f"{type(loss).__name__}, {way}"
            for _ in range(steps):
                rows = torch.randperm(TRAIN)[:BATCH]
                loop.step(images[rows], labels[rows], parts, usual)
            z = nn.functional.normalize(loop.network(images), dim=1).detach()
            right = vmcr2.NearestSubspace().fit(z[:TRAIN], labels[:TRAIN]).predict(z[TRAIN:]) == labels[TRAIN:]
            delta = vmcr2.rate_reduction(z[:TRAIN], labels[:TRAIN]).delta
            found[name] = float(delta), float(right.double().mean()), loop.skipped
            print(f"{name:29}  ΔR %5.2f  accuracy %.3f  steps skipped %d" % found[name])
    return found


if __name__ == "__main__":
    main()
