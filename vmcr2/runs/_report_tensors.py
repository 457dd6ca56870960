"""``evaluation.safetensors``: what a report needs, so that it works without weights and data.

It stays under 16 MiB for any number of classes up to a million, beside the classes' names. Up to 500 classes it has
samples, spectra, angles and pictures of all of them, and of more classes those of 200. Only three numbers grow with k:
a class's effective rank, how many unseen samples it has, and how many of them were right.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..data import Split
from ..functional import Guard, HardClasses, class_subspaces, principal_angles, residuals_of
from ._measure import TrainingSide, effective_ranks
from ._shown_classes import ClassPart, part_of

_SAMPLE_FLOATS = 1_500_000
_SPECTRUM = 30
_NEAREST = 8
_WORST = 32
_THUMBNAIL = 32
_AT_ONCE = 200
_THUMBNAIL_BYTES = 6 * 2**20
# tables that would not fit into 16 MiB with the rest are left out: the k×k answers, and the q×k codes
_CONFUSION_CLASSES = 700
_SHOWN = 1_000_000
_PAIRS = 1000


def evaluation_tensors(
    side: TrainingSide, train: Split, unseen: Split, unseen_features: Tensor, num_classes: int, shown: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Sampled features with labels, spectra, angles, codes, confusions, and pictures.

    Features are half precision; ``features`` are of the training set, ``unseen_features`` of the test set or hold-out.
    ``shown`` are the objective's own tensors for the report, such as V-MCR²'s codes (q, k).
    """
    part = part_of(side.features, side.labels, num_classes)
    truth = unseen.labels.to(side.labels.device)
    other = part_of(unseen_features, truth, num_classes)
    predicted = side.classifier.predict(unseen_features)
    bases = side.classifier.bases[part.classes]
    dim = side.features.shape[1]
    spectra = class_subspaces(part.features, part.labels, len(part.classes), num_components=min(_SPECTRUM, dim))
    tensors = {
        "num_classes": torch.tensor(num_classes),
        "shown_classes": part.classes,
        "train_sizes": torch.bincount(part.labels, minlength=len(part.classes)).to(torch.int32),
        **_sampled(part, ""),
        **_sampled(other, "unseen_"),
        "spectra": spectra.energies,
        "effective_ranks": effective_ranks(side.features, side.labels, num_classes),
        **answered(truth, predicted, num_classes),
    }
    tensors |= {name: value.half() for name, value in shown.items() if value.numel() <= _SHOWN}
    angles = principal_angles(bases)
    tensors |= {"smallest_angles": angles[..., 0].half(), "mean_angles": angles.mean(-1).half()}
    if train.inputs.ndim == 4:  # rows of a table have no pictures
        tensors |= _nearest_pictures(part, bases, train)
        tensors |= _worst_pictures(side, unseen, unseen_features, predicted)
    return tensors


def _sampled(part: ClassPart, prefix: str) -> dict[str, Tensor]:
    """The first samples of every shown class, as many as there is room for."""
    per_class = max(1, _SAMPLE_FLOATS // (len(part.classes) * part.features.shape[1]))
    chosen = first_of_each(part.labels, len(part.classes), per_class)
    return {f"{prefix}features": part.features[chosen].half(), f"{prefix}labels": part.classes[part.labels[chosen]]}


def answered(labels: Tensor, predicted: Tensor, num_classes: int) -> dict[str, Tensor]:
    """How the classes were answered: a k×k table up to 700 classes; of more, sizes, right answers and the most frequent
    mistakes as rows of class, answer and times."""
    if num_classes <= _CONFUSION_CLASSES:
        return {"confusion": confusion(labels, predicted, num_classes)}
    right = labels == predicted
    pairs, times = torch.unique(labels[~right] * num_classes + predicted[~right], return_counts=True)
    most = times.argsort(descending=True, stable=True)[:_PAIRS]
    return {
        "class_sizes": torch.bincount(labels, minlength=num_classes).to(torch.int32),
        "class_right": torch.bincount(labels[right], minlength=num_classes).to(torch.int32),
        "confused": torch.stack([pairs[most] // num_classes, pairs[most] % num_classes, times[most]], dim=1).int(),
    }


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


def _nearest_pictures(part: ClassPart, bases: Tensor, train: Split) -> dict[str, Tensor]:
    """For each shown class, the training pictures along its first principal directions, strongest first."""
    shape = _thumbnail_shape(train)
    count = max(1, min(_NEAREST, _THUMBNAIL_BYTES // (len(bases) * shape[0] * shape[1] * shape[2])))
    found = _strongest(part.features, part.labels, bases, count)
    index = torch.where(found < 0, -1, part.rows[found.clamp_min(0)]).cpu()
    pictures = thumbnails(train, index.flatten().clamp_min(0)).reshape(*index.shape, *shape)
    pictures[index < 0] = 0  # a class without samples has none
    return {"nearest_pictures": pictures, "nearest_index": index}


def _strongest(features: Tensor, labels: Tensor, bases: Tensor, count: int) -> Tensor:
    """(k, count): the strongest sample along each of the class's directions, then the next of each; −1 if absent."""
    directions, total, num_classes = bases.shape[2], len(labels), len(bases)
    found = labels.new_full((num_classes, count), -1)
    pick = torch.arange(count, device=found.device)
    for group in HardClasses(labels, num_classes, features.dtype, None).groups(Guard()):
        along = (group.gather(features) @ bases[group.classes]).abs_()  # along directions of its own class
        filled = group.rows < total
        along[~filled] = -1.0
        top = along.topk(min(-(-count // directions), along.shape[1]), dim=1).indices
        rank = torch.minimum(pick // directions, filled.sum(1, keepdim=True) - 1)
        each = torch.arange(len(rank), device=found.device).unsqueeze(1)
        found[group.classes] = group.rows[each, top[each, rank, pick % directions]]
    return found


def _worst_pictures(side: TrainingSide, unseen: Split, features: Tensor, predicted: Tensor) -> dict[str, Tensor]:
    """The mistakes whose own class is furthest, compared with the class they were taken for."""
    labels, bases = unseen.labels.to(predicted.device), side.classifier.bases
    gap = residuals_of(features, bases, labels) - residuals_of(features, bases, predicted)
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
