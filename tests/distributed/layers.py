"""Layers that see a share of a batch, and the same layers in one process with all of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vmcr2.distributed import GradientSum, Ranks

ROWS = 13


class DroppedPaths(nn.Module):
    """As timm and torchvision draw them."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.new_empty(len(x), *[1] * (x.ndim - 1)).bernoulli_(0.7)


class NormAndActivation(nn.BatchNorm2d):
    """A BatchNorm with a forward of its own, as timm has them."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(super().forward(x))


class Tokens(nn.Module):
    """Several rows for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(6), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.permute(0, 2, 3, 1).reshape(-1, 6)
        return self.drop(self.norm(rows)).view(len(x), -1)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "BatchNorm2d": lambda: nn.BatchNorm2d(6),
    "BatchNorm1d": lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(54)),
    "BatchNorm without weights": lambda: nn.BatchNorm2d(6, affine=False, momentum=None),
    "BatchNorm without running statistics": lambda: nn.BatchNorm2d(6, track_running_stats=False),
    "BatchNorm with an activation": lambda: NormAndActivation(6),
    "Dropout": lambda: nn.Dropout(0.4),
    "Dropout2d": lambda: nn.Dropout2d(0.4),
    "dropped paths": DroppedPaths,
    "tokens": Tokens,
    "frozen BatchNorm": lambda: nn.Sequential(nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6).eval()),
}


def batch() -> tuple[Tensor, Tensor]:
    """Inputs with a large mean, and what the outputs are multiplied with."""
    generator = torch.Generator().manual_seed(0)
    x = 30 + torch.randn(ROWS, 6, 3, 3, generator=generator, dtype=torch.float64)
    return x, torch.randn(ROWS, 54, generator=generator, dtype=torch.float64)


def made(name: str) -> nn.Module:
    torch.manual_seed(3)
    layer = LAYERS[name]().double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


def computed(name: str, ranks: Ranks) -> dict[str, Tensor]:
    """Two passes: outputs, gradients and running statistics, and the next random number."""
    layer = made(name)
    sum_gradients = GradientSum(ranks, layer.parameters(), [])
    found: dict[str, Tensor] = {}
    for at in range(2):
        x, factor = batch()
        x = x.roll(at, 0)[ranks.share(ROWS)].requires_grad_()
        layer.zero_grad()
        with ranks.whole_batch(ROWS):
            y = ranks.gather(layer(x), ROWS)
        (y.flatten(1) * factor).sum().backward()
        sum_gradients()
        assert x.grad is not None
        found |= {f"output {at}": y.detach(), f"gradient {at}": ranks.gather(x.grad, ROWS)}
        for parameter_name, parameter in layer.named_parameters():
            assert parameter.grad is not None
            found[f"{parameter_name}, gradient {at}"] = parameter.grad.clone()
    found |= {f"buffer {key}": value.clone() for key, value in layer.named_buffers()}
    return found | {"next draw": torch.rand(3)}


def layer_cases(rank: int, world: int) -> dict[str, dict[str, Tensor]]:
    """In one of several processes."""
    return {name: computed(name, Ranks(active=True)) for name in LAYERS}
