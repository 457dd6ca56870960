"""Hugging Face Accelerate: V-MCR² in a loop with an Accelerator, gradient accumulation and saved states.

    pip install accelerate
    python examples/with_accelerate.py

`accelerator.accumulate` adds the losses of micro-batches. That is not the loss of the batch, because a coding rate
belongs to a set of points, and the dictionary would move once for each of them. So the loader gives whole batches, and
`checkpoint` keeps the activations of one part at a time (see own_loop.py). With many processes the loss sees each
process's part of the batch. It prints the accuracy on test digits before and after the state is saved and loaded.
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

    def __init__(self, seed: int, images: Tensor, labels: Tensor) -> None:
        torch.manual_seed(seed)
        # bfloat16 needs no scaler; float16, for which a scaler skips steps, is for GPUs
        self.accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "bf16")
        network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
        optimiser, loader = torch.optim.AdamW(network.parameters(), lr=2e-3), DataLoader(TensorDataset(images, labels), BATCH, shuffle=True)
        self.network, self.optimiser, self.loader = self.accelerator.prepare(network, optimiser, loader)
        # not prepared: it has no weights, and an unprepared module is not wrapped
        self.loss = vmcr2.VMCR2Loss(10, 64, atoms_per_class=6).to(self.accelerator.device)
        self.accelerator.register_for_checkpointing(self.loss)  # save_state then contains Γ and A

    def step(self, images: Tensor, labels: Tensor) -> None:
        before = copy.deepcopy(self.loss.state_dict())
        self.optimiser.zero_grad()
        z = torch.cat([checkpoint(self.network, part, use_reentrant=False) for part in images.chunk(PARTS)])
        self.accelerator.backward(self.loss(z, labels))
        self.accelerator.clip_grad_norm_(self.network.parameters(), 1.0)  # it unscales first
        self.optimiser.step()
        if self.accelerator.optimizer_step_was_skipped:  # a float16 gradient was infinite:
            self.loss.load_state_dict(before)
