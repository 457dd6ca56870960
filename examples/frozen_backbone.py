"""Embeddings of a network that is not trained any more: a small head on them is trained with exact MCR².

    python examples/frozen_backbone.py

Here the backbone learned digits 0 to 4 by cross-entropy, and the new classes are 5 to 9. Replace `backbone` by your own
network: in eval mode (BatchNorm, dropout), its embeddings computed once, and scaled by the training set's mean and
deviation. It prints, for test digits of the new classes, for the raw embeddings and for the head's features: the
accuracy of the nearest subspace, ΔR divided by its maximum, and the mean |cosine| within and between classes.
On this data the head changes the structure, not the accuracy: first try NearestSubspace on the raw embeddings.
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

import vmcr2

TRAIN, KNOWN, DIM = 1200, 5, 32  # DIM, the head's width and its steps: chosen on 400 of the training digits


def backbone(images: Tensor, labels: Tensor) -> nn.Module:
    """A network that knows the first classes, frozen."""
    body = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
    network = nn.Sequential(body, nn.Linear(64, KNOWN))
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for _ in range(200):
        rows = torch.randperm(len(images))[:128]
        optimiser.zero_grad()
        cross_entropy(network(images[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return body.eval().requires_grad_(False)


def train_head(embeddings: Tensor, labels: Tensor) -> nn.Module:
    """A head whose features of length 1 fall into subspaces."""
    head = nn.Sequential(nn.Linear(embeddings.shape[1], 256), nn.ReLU(), nn.Linear(256, DIM))
    loss = vmcr2.MCR2Loss(KNOWN)
    optimiser = torch.optim.AdamW(head.parameters(), lr=1e-3)
    for _ in range(100):
        rows = torch.randperm(len(labels))[:256]
        optimiser.zero_grad()
        loss(head(embeddings[rows]), labels[rows]).backward()
        optimiser.step()
    return head


def measure(train: Tensor, old: Tensor, test: Tensor, new: Tensor) -> tuple[float, float, float, float]:
    """Accuracy, ΔR as a share of its maximum, and mean |cosine| within and between classes, of test digits."""
    train, test = normalize(train, dim=1), normalize(test, dim=1)
    right = vmcr2.NearestSubspace().fit(train, old).predict(test) == new
    best = vmcr2.functional.maximal_rate_reduction(test.shape[1], KNOWN)
    similar, same = (test @ test.T).abs(), new[:, None] == new
    within = similar[same & ~torch.eye(len(new), dtype=torch.bool)].mean()
    share = vmcr2.rate_reduction(test, new).delta / best
    return float(right.double().mean()), float(share), float(within), float(similar[~same].mean())


def main(seed: int = 0) -> dict[str, tuple[float, float, float, float]]:
    """The figures of the raw embeddings and of the head's features."""
    torch.manual_seed(seed)
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    images, first, new = images.float() / 16, torch.arange(len(labels)) < TRAIN, labels >= KNOWN
    body = backbone(images[first & ~new], labels[first & ~new])
    train, test = body(images[first & new]), body(images[~first & new])
    old, truth = labels[first & new] - KNOWN, labels[~first & new] - KNOWN
    scaled = [(part - train.mean(0)) / (train.std(0) + 1e-3) for part in (train, test)]
    head = train_head(scaled[0], old)
    found = {"raw embeddings": measure(train, old, test, truth)}
    found["head's features"] = measure(head(scaled[0]).detach(), old, head(scaled[1]).detach(), truth)
    for name, figures in found.items():
        print("{:15}  accuracy {:.3f}  ΔR {:.2f}  |cosine| within {:.2f}, between {:.2f}".format(name, *figures))
    return found


if __name__ == "__main__":
    main()
