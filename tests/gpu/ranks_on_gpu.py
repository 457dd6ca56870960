"""What the processes of the tests on a GPU do."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from digits_trainer import feed
from torch import nn

from vmcr2.data import open_data
from vmcr2.distributed import ALONE, Ranks, WholeBatch, leave_together
from vmcr2.runs import Trainer, recipe
from vmcr2.training import batch_figures

OBJECTIVES = ("vmcr2", "mcr2", "ce", "ce+mcr2", "ce+vmcr2")
STEPS = 20


class AsOneOfMany(Ranks):
    """One process that computes BatchNorm as several do."""

    def whole_batch(self, total: int) -> AbstractContextManager[None]:
        return WholeBatch(self.share(total), total)


def network() -> nn.Module:
    """BatchNorm, dropout and no ReLU: at 0 rounding would decide its gradient."""
    hidden = [nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Dropout(0.2)]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(64, 32))


def trained(objective: str, ranks: Ranks = ALONE, device: str = "cuda") -> dict[str, Any]:
    """Losses, weights and state after 20 steps on digits with augmentation, as the settings' engine makes them."""
    settings: dict[str, Any] = {
        "precision": "float32",
        "augmentation": "crop",
        "crop_padding": 1,
        "calibration_share": 0.0,
    }
    if "vmcr2" in objective:
        settings["atoms_per_class"] = 3
    config = recipe("digits", objective=objective, device=device, dim=32, **settings)
    config = config.replace(model="ranks_on_gpu:network")
    made = Trainer(config, open_data("digits"), ranks.place(torch.device(device)), ranks=ranks)
    said: list[str] = []
    loop = made.loop(1, said.append)
    made.step.begin(0)
    loop.latch_if_due(0)
    losses = []
    for draw in range(STEPS):
        feed(made, draw)
        loop.engine()
        losses.append(batch_figures(made.step)["loss"])
    tensors = [*made.network.state_dict().items(), *made.objective.module.state_dict().items()]
    return {
        "losses": losses,
        "weights": {name: value.detach().cpu() for name, value in tensors},
        "captured": loop.engine.captured,
        "said": said,
    }


def one_over_nccl(rank: int, folder: str) -> None:
    """Plain, over nccl, and over nccl with the BatchNorm of several."""
    deterministic()
    meet = f"file://{folder}/meet"
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method=meet, rank=rank, world_size=1)
    found = {
        objective: (
            trained(objective),
            trained(objective, Ranks(active=True)),
            trained(objective, AsOneOfMany(active=True)),
        )
        for objective in OBJECTIVES
    }
    torch.save(found, Path(folder) / "results.pt")
    leave_together()


def two_over_gloo(rank: int, folder: str) -> None:
    """Both on the one GPU, and the same in one process, which rank 0 computes afterwards."""
    deterministic()
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = {objective: trained(objective, Ranks(active=True)) for objective in OBJECTIVES}
    leave_together()
    if rank == 0:
        torch.save({name: (trained(name), own) for name, own in found.items()}, Path(folder) / "results.pt")


def deterministic() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
