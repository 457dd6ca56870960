"""Twenty steps of the training loop in float64 and float32, for every objective."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from seeds import SEED
from torch import Tensor, nn

from vmcr2.distributed import ALONE, Ranks, rows_are_whole
from vmcr2.objectives import OBJECTIVES, Objective
from vmcr2.training import Engine, Loop, NoisyRows, Numerics, OptimSettings, Step, batch_figures, epoch_order

CLASSES, DIM, INPUTS, SAMPLES, BATCH, EPOCHS = 5, 12, 9, 130, 62, 10
CASES = ("vmcr2", "vmcr2 with blocks", "mcr2", "mcr2 with memory", "ce", "ce with weights", "ce+mcr2", "ce+vmcr2")
CPU = torch.device("cpu")


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def samples() -> NoisyRows:
    """Classes come in order: with few rows of a batch, a process lacks some."""
    generator = torch.Generator().manual_seed(SEED)
    labels = torch.arange(SAMPLES) * CLASSES // SAMPLES
    x = torch.randn(SAMPLES, INPUTS, generator=generator) + 3 * torch.eye(INPUTS)[labels]
    return NoisyRows(x, labels, torch.full((INPUTS,), 0.1))


class Network(nn.Module):
    """BatchNorm, dropout, unit rows."""

    def __init__(self) -> None:
        super().__init__()
        hidden = [nn.Linear(INPUTS, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.2)]
        self.layers = nn.Sequential(*hidden, nn.Linear(32, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, DIM))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(self.layers(x))


def objective_of(case: str, labels: Tensor) -> Objective:
    kind = OBJECTIVES[case.split(" with ", maxsplit=1)[0]]
    settings = {"latch_every": 3, "atoms_per_class": 2} if "vmcr2" in case else {}
    if "blocks" in case:
        settings["block"] = True
    if "memory" in case:
        settings = {"memory": 100}
    with rows_are_whole():
        return kind(**settings).build(CLASSES, DIM, labels, BATCH)


def trained(case: str, dtype: torch.dtype, ranks: Ranks = ALONE) -> dict[str, Tensor]:
    """Losses, the last gradients, weights, statistics, Γ, A, the memory, the mean of the weights, and features."""
    with default_dtype(dtype):
        torch.manual_seed(SEED)
        data = samples()
        network, objective = Network(), objective_of(case, data.labels)
        objective.module.to(dtype)
        optim = OptimSettings(lr=0.05, schedule="cosine", epochs=EPOCHS, batch_size=BATCH, average=0.9)
        step = Step(
            network,
            objective,
            data,
            optim,
            batch_size=BATCH,
            dim=DIM,
            seed=0,
            numerics=Numerics(CPU),
            weights=1.0 + data.labels if "weights" in case else None,
            ranks=ranks,
        )
        loop = Loop(step, Engine(step), lambda epoch: epoch_order(SAMPLES, 0, epoch))
        found: dict[str, Tensor] = {}

        def note(epoch: int, _: float) -> None:
            found[f"loss {epoch}"] = torch.tensor(batch_figures(step)["loss"])

        assert loop.run(0, trained=note) == 20
        for name, parameter in [*network.named_parameters(), *objective.module.named_parameters()]:
            assert parameter.grad is not None
            found[f"gradient {name}"] = parameter.grad.clone()
        found |= {f"network {name}": value.clone() for name, value in network.state_dict().items()}
        found |= {f"objective {name}": value.clone() for name, value in objective.module.state_dict().items()}
        with step.measured():
            found["features by the mean"] = step.embed()
        return found


def step_cases() -> dict[str, dict[str, Tensor]]:
    """In one of several processes."""
    ranks = Ranks(active=True)
    return {
        f"{case}, {dtype}": trained(case, dtype, ranks) for case in CASES for dtype in (torch.float64, torch.float32)
    }
