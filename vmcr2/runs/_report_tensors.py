"""``evaluation.safetensors``: what a report needs, so that it works without weights and data.

It stays under 16 MiB if one feature and one picture of each class do: for example with 2000 classes and d = 500.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..data import Split
from ..functional import Guard, HardClasses, class_subspaces, principal_angles
from ._measure import TrainingSide, effective_ranks

_SAMPLE_FLOATS = 1_500_000
_SPECTRUM = 30
_NEAREST = 8
_WORST = 32
_THUMBNAIL = 32
_AT_ONCE = 200
_THUMBNAIL_BYTES = 6 * 2**20
# tables that would not fit into 16 MiB with the rest are left out: k×k angles and answers, and the q×k codes
_ANGLE_CLASSES = 500
_CONFUSION_CLASSES = 700
_SHOWN = 1_000_000


def evaluation_tensors(
    side: TrainingSide, train: Split, unseen: Split, unseen_features: Tensor, num_classes: int, shown: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Sampled features with labels, spectra, angles, codes, the confusion matrix, and pictures.

    Features are half precision; ``features`` are of the training set, ``unseen_features`` of the test set or hold-out.
    ``shown`` are the objective's own tensors for the report, such as V-MCR²'s codes (q, k).
    """
    per_class = max(1, _SAMPLE_FLOATS // (num_classes * side.features.shape[1]))
    chosen = first_of_each(side.labels, num_classes, per_class)
    other = first_of_each(unseen.labels.to(side.labels.device), num_classes, per_class)
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
    }
    if num_classes <= _CONFUSION_CLASSES:
        tensors["confusion"] = confusion(unseen.labels.to(predicted.device), predicted, num_classes)
    tensors |= {name: value.half() for name, value in shown.items() if value.numel() <= _SHOWN}
    tensors |= _angles(side.classifier.bases)
    if train.inputs.ndim == 4:  # rows of a table have no pictures
        tensors |= _nearest_pictures(side, train, num_classes)
        tensors |= _worst_pictures(side, unseen, unseen_features, predicted)
    return tensors


def confusion(labels: Tensor, predicted: Tensor, num_classes: int) -> Tensor:
    """How often class i (row) was taken for class j (column)."""
    flat = torch.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    return flat.reshape(num_classes, num_classes).to(torch.int32)


def first_of_each(labels: Tensor, num_classes: int, count: int) -> Tensor:
    """The first samples of every class, class by class."""
    order = labels.argsort(stable=True)
    sizes = torch.bincount(labels, minlength=num_classes)
    starts = sizes.cumsum(0) - sizes
    place = torch.arange(len(labels), device=labels.device) - starts[labels[order]]
    return order[place < count]


def _angles(bases: Tensor) -> dict[str, Tensor]:
    """The smallest and the mean principal angle between every two class subspaces, in radians."""
    if len(bases) > _ANGLE_CLASSES:
        return {}
    angles = principal_angles(bases)
    return {"smallest_angles": angles[..., 0].half(), "mean_angles": angles.mean(-1).half()}


def _nearest_pictures(side: TrainingSide, train: Split, num_classes: int) -> dict[str, Tensor]:
    """For each class, the training pictures along its first principal directions, strongest first."""
    shape = _thumbnail_shape(train)
    count = max(1, min(_NEAREST, _THUMBNAIL_BYTES // (num_classes * shape[0] * shape[1] * shape[2])))
    index = _strongest(side, num_classes, count).cpu()
    pictures = thumbnails(train, index.flatten().clamp_min(0)).reshape(*index.shape, *shape)
    pictures[index < 0] = 0  # a class without samples has none
    return {"nearest_pictures": pictures, "nearest_index": index}


def _strongest(side: TrainingSide, num_classes: int, count: int) -> Tensor:
    """(k, count): the strongest sample along each of the class's directions, then the next of each; −1 if absent."""
    bases = side.classifier.bases
    directions, total = bases.shape[2], len(side.labels)
    found = side.labels.new_full((num_classes, count), -1)
    pick = torch.arange(count, device=found.device)
    for group in HardClasses(side.labels, num_classes, side.features.dtype, None).groups(Guard()):
        along = (group.gather(side.features) @ bases[group.classes]).abs_()  # along directions of its own class
        filled = group.rows < total
        along[~filled] = -1.0
        top = along.topk(min(-(-count // directions), along.shape[1]), dim=1).indices
        rank = torch.minimum(pick // directions, filled.sum(1, keepdim=True) - 1)
        each = torch.arange(len(rank), device=found.device).unsqueeze(1)
        found[group.classes] = group.rows[each, top[each, rank, pick % directions]]
    return found


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
        "worst_pictures": thumbnails(unseen, worst),
        "worst_labels": unseen.labels[worst],
        "worst_predicted": predicted.cpu()[worst],
    }


def _thumbnail_shape(split: Split) -> tuple[int, int, int]:
    channels, height, width = split.images.shape[1:]
    return channels, min(height, _THUMBNAIL), min(width, _THUMBNAIL)


def thumbnails(split: Split, index: Tensor) -> Tensor:
    """Pictures of these samples, uint8, at most 32×32."""
    shape = _thumbnail_shape(split)
    if tuple(split.images.shape[1:]) == shape or not len(index):
        return split.images[index]
    # few at a time: large pictures in float take gigabytes
    return torch.cat([_small(split.images[part], shape) for part in torch.split(index, _AT_ONCE)])


def _small(pictures: Tensor, shape: tuple[int, int, int]) -> Tensor:
    small = torch.nn.functional.interpolate(pictures.float(), size=shape[1:], mode="bilinear", antialias=True)
    return small.round().clamp(0, 255).to(torch.uint8)
