"""Measures a trained network: images without augmentation, evaluation mode."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..classifiers import NearestSubspace
from ..functional import (
    ClassGroup,
    Guard,
    HardClasses,
    nearest_subspace,
    rate_reduction,
    subspace_overlap,
    top_logits,
)
from ..objectives import Objective
from ..training import TrainingError
from ._config import Config

_COSINE_SAMPLE = 10_000
_NEIGHBOURS = 5
_COMPONENTS = (1, 2, 3, 5, 8, 12, 20)
_GRAM_FLOATS = 2**25
_COSINES = 2**25  # at a time, with all training samples: 128 MiB
_PAIRED_CLASSES = 1000  # up to so many, a k×k table
_BASES_FLOATS = 2**28  # of bases that are tried: 1 GiB


class TrainingSide(NamedTuple):
    """Features of the whole training set, the subspaces fitted on them, and figures."""

    features: Tensor
    labels: Tensor
    classifier: NearestSubspace
    figures: dict[str, float]


def classifier_of(config: Config, num_classes: int) -> NearestSubspace:
    """The nearest-subspace classifier of a run, not fitted yet."""
    return NearestSubspace(num_classes, config.run.components or None)


def check_sound(features: Tensor) -> Tensor:
    """The features, if all are finite. Steps look at those of training mode; here BatchNorm has other statistics."""
    if not bool(torch.isfinite(features.sum())):
        raise TrainingError(
            "training broke: in evaluation mode the network's features are not finite. Lower lr or loss_scale"
        )
    return features


def evaluate_training(config: Config, features: Tensor, labels: Tensor, num_classes: int) -> TrainingSide:
    """Full-train and batch rates, cosines, orthogonality and effective ranks; the subspaces to classify by."""
    full = rate_reduction(features.double(), labels, num_classes, eps_sq=config.objective.eps_sq)
    classifier = classifier_of(config, num_classes).fit(features, labels)
    within, between = mean_cosines(features, labels)
    # always of ⌊d/k⌋ dimensions, so that runs with other classifiers can be compared
    whole = NearestSubspace(num_classes).fit(features, labels) if config.run.components else classifier
    ranks = effective_ranks(features, labels, num_classes)
    figures = {
        "train_delta_r": full.delta.item(),
        "expansion": full.expansion.item(),
        "compression": full.compression.item(),
        "batch_delta_r": mean_batch_delta(config, features, labels, num_classes),
        "within_cosine": within,
        "between_cosine": between,
        "subspace_overlap": mean_overlap(whole.bases),
        "effective_rank": ranks[ranks > 0].mean().item() if bool((ranks > 0).any()) else 0.0,  # all features zero
        "train_accuracy": accuracy(classifier.predict(features), labels),
    }
    return TrainingSide(features, labels, classifier, figures)


def evaluate_unseen(
    side: TrainingSide, features: Tensor, labels: Tensor, num_classes: int, objective: Objective, name: str
) -> dict[str, Any]:
    """Accuracies on features that were not trained on, under ``name``: of the classifiers, and of a head.

    On held-out samples (``holdout``) also with other numbers of components. These figures help to choose that number,
    so a run on the test set must not have them.
    """
    figures: dict[str, Any] = {
        f"{name}_accuracy": accuracy(side.classifier.predict(features), labels),
        f"{name}_class_mean_accuracy": accuracy(nearest_class_mean(side, features, num_classes), labels),
        f"{name}_neighbours_accuracy": accuracy(nearest_neighbours(side, features, num_classes), labels),
    }
    if name == "holdout":
        most = min(features.shape[1], max(1, _BASES_FLOATS // (num_classes * features.shape[1])))
        counts = [count for count in _COMPONENTS if count <= most]
        widest = NearestSubspace(num_classes, counts[-1]).fit(side.features, side.labels).bases
        figures["holdout_accuracy_by_components"] = {
            str(count): accuracy(nearest_subspace(features, widest[:, :, :count]), labels) for count in counts
        }
    with torch.no_grad():
        predicted = objective.predict(features)
    if predicted is not None:
        figures["head_accuracy"] = accuracy(predicted, labels)
    return figures


def choose_readout(asked: str, figures: dict[str, Any]) -> str:
    """ "head" or "subspace": as asked, or the better one on held-out images, or the head where there is one.

    >>> choose_readout("auto", {"head_accuracy": 0.8, "holdout_accuracy": 0.9})
    'subspace'
    """
    if "head_accuracy" not in figures:
        return "subspace"
    if asked != "auto":
        return asked
    return "subspace" if figures.get("holdout_accuracy", 0.0) > figures["head_accuracy"] else "head"


def accuracy(predicted: Tensor, labels: Tensor) -> float:
    """The share of right answers."""
    return (predicted == labels).double().mean().item()


def mean_batch_delta(config: Config, features: Tensor, labels: Tensor, num_classes: int) -> float:
    """ΔR averaged over one shuffled pass of batches of the recipe's size; an incomplete batch is left out."""
    size = min(config.optim.batch_size, len(features))
    order = torch.randperm(len(features), generator=torch.Generator().manual_seed(config.run.seed)).to(features.device)
    batches = [order[i : i + size] for i in range(0, len(order) - size + 1, size)]
    deltas = [
        rate_reduction(features[b], labels[b], num_classes, eps_sq=config.objective.eps_sq).delta for b in batches
    ]
    return torch.stack(deltas).mean().item()


def mean_cosines(features: Tensor, labels: Tensor) -> tuple[float, float]:
    """Mean |cosine| within a class and between classes, self-pairs left out, over at most 10,000 samples."""
    if len(features) > _COSINE_SAMPLE:
        chosen = torch.randperm(len(features), generator=torch.Generator().manual_seed(0))[:_COSINE_SAMPLE]
        features, labels = features[chosen.to(features.device)], labels[chosen.to(labels.device)]
    sums = torch.zeros(2, dtype=torch.float64, device=features.device)
    counts = torch.zeros(2, dtype=torch.float64, device=features.device)
    for start in range(0, len(features), 1000):
        rows = slice(start, start + 1000)
        cosines = (features[rows] @ features.T).abs_()
        same = labels[rows].unsqueeze(1) == labels
        cosines.diagonal(start).zero_()
        sums += torch.stack([(cosines * same).sum(), (cosines * ~same).sum()])
        counts += torch.stack([same.sum() - len(cosines), (~same).sum()])
    means = sums / counts.clamp_min(1)
    return means[0].item(), means[1].item()


def effective_ranks(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """(tr Ĉ_j)²/‖Ĉ_j‖_F² per class: r for r equal eigenvalues; 0 for an absent class."""
    traces = features.new_zeros(num_classes).index_add_(0, labels, features.square().sum(1))
    energies = class_energies(features, labels, num_classes)
    return torch.where(energies > 0, traces.square() / torch.where(energies > 0, energies, 1.0), 0.0)


def mean_overlap(bases: Tensor) -> float:
    """The mean of :func:`subspace_overlap` over pairs of different classes; of many classes without a k×k table.

    ‖V_iᵀV_j‖_F² = ⟨V_iV_iᵀ, V_jV_jᵀ⟩, so the sum over classes of one rank needs only the d×d sum of their projections.
    """
    k = len(bases)
    if k == 1:
        return 0.0
    if k <= _PAIRED_CLASSES:
        overlap = subspace_overlap(bases)
        return overlap[~torch.eye(k, dtype=torch.bool, device=overlap.device)].mean().item()
    ranks = (bases != 0).any(1).sum(1)
    found = torch.unique(ranks[ranks > 0])
    sums = [_projections(bases, (ranks == rank).nonzero()[:, 0]) for rank in found]
    total = sum(
        float((one * other).sum()) / min(int(a), int(b))
        for a, one in zip(found, sums, strict=True)
        for b, other in zip(found, sums, strict=True)
    )
    return (total - int((ranks > 0).sum())) / (k * (k - 1))  # a class with itself has 1


def _projections(bases: Tensor, classes: Tensor) -> Tensor:
    """Σ_j V_jV_jᵀ over some classes, (d, d) in float64."""
    d, r = bases.shape[1:]
    total = bases.new_zeros(d, d, dtype=torch.float64)
    for part in torch.split(classes, max(1, _GRAM_FLOATS // (d * r))):
        vectors = bases[part].double().transpose(1, 2).reshape(-1, d)
        total.addmm_(vectors.T, vectors)
    return total


def class_energies(features: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """‖Z_jᵀZ_j‖_F² per class, many classes at a time, from the smaller of its two Gram matrices."""
    classes = HardClasses(labels, num_classes, features.dtype, None)
    energies = features.new_zeros(num_classes)
    for group in classes.groups(Guard()):
        side = min(group.rows.shape[1], features.shape[1])
        step = max(1, _GRAM_FLOATS // side**2)
        for start in range(0, len(group.classes), step):
            part = ClassGroup(group.classes[start : start + step], group.rows[start : start + step])
            members = part.gather(features)
            gram = members @ members.mT if members.shape[1] == side else members.mT @ members
            energies[part.classes] = gram.square().sum((1, 2))
    return energies


def nearest_class_mean(side: TrainingSide, features: Tensor, num_classes: int) -> Tensor:
    """The class whose mean direction is nearest."""
    sums = torch.zeros(num_classes, features.shape[1], dtype=side.features.dtype, device=features.device)
    sums.index_add_(0, side.labels, side.features)
    absent = torch.bincount(side.labels, minlength=num_classes) == 0
    below = torch.where(absent, -torch.inf, 0.0).to(sums.dtype)
    return top_logits(features, nn.functional.normalize(sums, dim=1), below).labels[:, 0]


def nearest_neighbours(side: TrainingSide, features: Tensor, num_classes: int, count: int = _NEIGHBOURS) -> Tensor:
    """The majority among the nearest training features by cosine; ties go to the lower class."""
    answers = []
    for part in torch.split(features, max(1, min(500, _COSINES // len(side.features)))):
        near = side.labels[(part @ side.features.T).topk(min(count, len(side.features)), dim=1).indices]
        votes = (near[:, :, None] == near[:, None, :]).sum(2)
        best = (votes * num_classes + (num_classes - 1 - near)).argmax(1, keepdim=True)
        answers.append(near.gather(1, best)[:, 0])
    return torch.cat(answers)
