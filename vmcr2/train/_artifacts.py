"""``evaluation.safetensors``: what a report needs, so that it works without weights and data; under 16 MiB."""

from __future__ import annotations

import torch
from torch import Tensor

from ..data import Split
from ..functional import class_subspaces
from ._evaluate import TrainingSide, effective_ranks

_SAMPLE_FLOATS = 1_500_000
_SPECTRUM = 30
_NEAREST = 8
_WORST = 32
_THUMBNAIL = 32
_THUMBNAIL_BYTES = 6 * 2**20


def evaluation_tensors(
    side: TrainingSide, train: Split, unseen: Split, unseen_features: Tensor, num_classes: int
) -> dict[str, Tensor]:
    """Sampled features with labels, spectra, the confusion matrix, and pictures.

    Features are half precision; ``features`` are of the training set, ``unseen_features`` of the test set or hold-out.
    """
    per_class = max(1, _SAMPLE_FLOATS // (num_classes * side.features.shape[1]))
    chosen = _first_of_each(side.labels, num_classes, per_class)
    other = _first_of_each(unseen.labels.to(side.labels.device), num_classes, per_class)
    predicted = side.classifier.predict(unseen_features)
    spectra = class_subspaces(
        side.features, side.labels, num_classes, num_components=min(_SPECTRUM, side.features.shape[1])
    )
    tensors = {
        "features": side.features[chosen].half(),
        "labels": side.labels[chosen],
        "unseen_features": unseen_features[other].half(),
        "unseen_labels": unseen.labels[other.cpu()],
        "spectra": spectra.energies,
        "effective_ranks": effective_ranks(side.features, side.labels, num_classes),
        "confusion": confusion(unseen.labels.to(predicted.device), predicted, num_classes),
    }
    return (
        tensors
        | _nearest_pictures(side, train, num_classes)
        | _worst_pictures(side, unseen, unseen_features, predicted)
    )


def confusion(labels: Tensor, predicted: Tensor, num_classes: int) -> Tensor:
    """How often class i (row) was taken for class j (column)."""
    flat = torch.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    return flat.reshape(num_classes, num_classes).to(torch.int32)


def _first_of_each(labels: Tensor, num_classes: int, count: int) -> Tensor:
    return torch.cat([(labels == j).nonzero().flatten()[:count] for j in range(num_classes)])


def _nearest_pictures(side: TrainingSide, train: Split, num_classes: int) -> dict[str, Tensor]:
    """For each class, the training pictures along its first principal directions, strongest first."""
    shape = _thumbnail_shape(train)
    count = max(1, min(_NEAREST, _THUMBNAIL_BYTES // (num_classes * shape[0] * shape[1] * shape[2])))
    directions = side.classifier.bases.shape[2]
    rows: list[Tensor] = []
    for j in range(num_classes):
        members = (side.labels == j).nonzero().flatten()
        along = (side.features[members] @ side.classifier.bases[j]).abs()
        if not len(members):
            rows.append(torch.full((count,), -1))
            continue
        order = members[along.argsort(0, descending=True)]
        rows.append(torch.stack([order[min(i // directions, len(order) - 1), i % directions] for i in range(count)]))
    index = torch.stack([row.cpu() for row in rows])
    pictures = _thumbnails(train, index.flatten().clamp_min(0)).reshape(*index.shape, *shape)
    pictures[index < 0] = 0  # a class without samples has none
    return {"nearest_pictures": pictures, "nearest_index": index}


def _worst_pictures(side: TrainingSide, unseen: Split, features: Tensor, predicted: Tensor) -> dict[str, Tensor]:
    """The mistakes whose own class is furthest, compared with the class they were taken for."""
    residuals = side.classifier.residuals(features)
    labels = unseen.labels.to(residuals.device)
    own = residuals.gather(1, labels.unsqueeze(1)).squeeze(1)
    gap = own - residuals.gather(1, predicted.unsqueeze(1)).squeeze(1)
    wrong = predicted != labels
    order = gap.masked_fill(~wrong, -torch.inf).argsort(descending=True)
    worst = order[: min(_WORST, int(wrong.sum()))].cpu()
    return {
        "worst_pictures": _thumbnails(unseen, worst),
        "worst_labels": unseen.labels[worst],
        "worst_predicted": predicted.cpu()[worst],
    }


def _thumbnail_shape(split: Split) -> tuple[int, int, int]:
    channels, height, width = split.images.shape[1:]
    return channels, min(height, _THUMBNAIL), min(width, _THUMBNAIL)


def _thumbnails(split: Split, index: Tensor) -> Tensor:
    pictures = split.images[index]
    shape = _thumbnail_shape(split)
    if tuple(pictures.shape[1:]) == shape or not len(pictures):
        return pictures
    small = torch.nn.functional.interpolate(pictures.float(), size=shape[1:], mode="bilinear", antialias=True)
    return small.round().clamp(0, 255).to(torch.uint8)
