"""Hugging Face Accelerate: V-MCR² with an Accelerator, gradient accumulation done right, and saved states.

    pip install accelerate
    python examples/with_accelerate.py

`accelerator.accumulate` adds the losses of micro-batches. That is not the loss of the batch, because a coding rate
belongs to a set of points, and the dictionary would move once for each of them. So the loader gives whole batches, and
`checkpoint` keeps the activations of one micro-batch at a time (see own_loop.py). With several processes, give the
loss gather=True (docs/scaling.md). It prints the accuracy on test digits, and again after saving and loading the state.
"""

from __future__ import annotations

import copy
import tempfile

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import vmcr2

TRAIN, BATCH, PARTS = 1200, 128, 4


class Loop:
    """A network, its loss and its optimiser, on the accelerator's device and in its precision."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels
        self.accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "bf16")
        network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
        optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3)
        loader = DataLoader(TensorDataset(images[:TRAIN], labels[:TRAIN]), BATCH, shuffle=True)
        self.network, self.optimiser, self.loader = self.accelerator.prepare(network, optimiser, loader)
        # the loss has no weights, so there is nothing to prepare; its dictionary and codes are part of what is saved
        self.loss = vmcr2.VMCR2Loss(10, 64, atoms_per_class=6).to(self.accelerator.device)
        self.accelerator.register_for_checkpointing(self.loss)

    def epoch(self) -> None:
        """For each batch one step of the optimiser and one of the dictionary, or none of either."""
        for images, labels in self.loader:
            before = copy.deepcopy(self.loss.state_dict())
            self.optimiser.zero_grad()
            z = torch.cat([checkpoint(self.network, part, use_reentrant=False) for part in images.chunk(PARTS)])
            self.accelerator.backward(self.loss(z, labels))
            self.accelerator.clip_grad_norm_(self.network.parameters(), 1.0)  # it unscales before
            self.optimiser.step()
            if self.accelerator.optimizer_step_was_skipped:  # a gradient was infinite: the dictionary goes back too
                self.loss.load_state_dict(before)

    def accuracy(self) -> float:
        """Of the nearest subspace, on the images that were not trained on."""
        with torch.no_grad():
            z = nn.functional.normalize(self.network(self.images.to(self.accelerator.device)), dim=1).cpu()
        predicted = vmcr2.NearestSubspace().fit(z[:TRAIN], self.labels[:TRAIN]).predict(z[TRAIN:])
        return float((predicted == self.labels[TRAIN:]).double().mean())


def main(seed: int = 0, epochs: int = 12) -> tuple[float, float]:
    """The accuracy, and the accuracy of a new loop that loads the state."""
    torch.manual_seed(seed)
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    loop, other = (Loop(images.float() / 16, labels) for _ in range(2))
    for _ in range(epochs):
        loop.epoch()
    with tempfile.TemporaryDirectory() as folder:
        loop.accelerator.save_state(folder)
        other.accelerator.load_state(folder)
    found = loop.accuracy(), other.accuracy()
    print("accuracy {:.4f}, loaded again {:.4f}".format(*found))
    return found


if __name__ == "__main__":
    main()
