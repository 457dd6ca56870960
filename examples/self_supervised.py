"""Learning without labels: two views of a picture are pulled together, and the coding rate keeps features apart.

    python examples/self_supervised.py

Pulling views together alone has a trivial solution: all features in one point. `vmcr2.coding_rate` of the batch is the
term against this collapse: it is large where features fill all directions. It needs no pairs of different pictures.

It prints, for test digits, the accuracy of the nearest neighbour among ten labelled pictures of each class (mean of ten
draws), for the pixels, the untrained network, and the network trained with and without the coding rate; and the coding
rate of the features: 2.09 is that of a single point, 17.58 the most in 32 dimensions (the
pixels have 64).
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import normalize, pad

import vmcr2

TRAIN, BATCH, DIM = 1200, 256, 32
INVARIANCE = 20.0  # chosen among 1 to 50 on 300 of the training digits, as were the views


def view(images: Tensor) -> Tensor:
    """Each picture moved by at most one pixel in both directions, with noise."""
    rows, columns = (torch.randint(3, (2, len(images), 1)) + torch.arange(8)).unbind()
    each = torch.arange(len(images))[:, None, None]
    moved = pad(images.view(-1, 8, 8), (1, 1, 1, 1))[each, rows[:, :, None], columns[:, None, :]]
    return (moved + 0.1 * torch.randn_like(moved)).flatten(1)


def train(network: nn.Module, images: Tensor, weight: float, steps: int) -> None:
    """Minimise −cosine of two views of a picture, minus the coding rate of each view's batch."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for _ in range(steps):
        batch = images[torch.randperm(len(images))[:BATCH]]
        one, other = (normalize(network(view(batch)), dim=1) for _ in range(2))
        rate = (vmcr2.coding_rate(one) + vmcr2.coding_rate(other)) / 2
        loss = -INVARIANCE * (one * other).sum(1).mean() - weight * rate
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def neighbours(z: Tensor, labels: Tensor) -> float:
    """The accuracy on test digits of the most similar of ten labelled training digits of each class."""
    right = []
    for draw in range(10):
        order = torch.randperm(TRAIN, generator=torch.Generator().manual_seed(draw))
        known = torch.cat([order[labels[order] == digit][:10] for digit in range(10)])
        right.append(labels[known[(z[TRAIN:] @ z[known].T).argmax(1)]] == labels[TRAIN:])
    return float(torch.cat(right).double().mean())


def main(seed: int = 0, steps: int = 300) -> dict[str, tuple[float, float]]:
    """Accuracy and coding rate of each kind of features."""
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    images, found = images.float() / 16, {}
    pixels = normalize(images, dim=1)
    found["pixels"] = neighbours(pixels, labels), float(vmcr2.coding_rate(pixels))
    for name, weight, its_steps in (("untrained", 0, 0), ("without the rate", 0, steps), ("with the rate", 1, steps)):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, DIM))
        train(network, images[:TRAIN], weight, its_steps)
        z = normalize(network(images), dim=1).detach()
        found[name] = neighbours(z, labels), float(vmcr2.coding_rate(z))
    for name, (accuracy, rate) in found.items():
        print(f"{name:16}  accuracy {accuracy:.3f}  coding rate {rate:5.2f}")
    return found


if __name__ == "__main__":
    main()
