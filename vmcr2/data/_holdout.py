"""Changes a training set: sets samples aside, a part of every class, or replaces labels."""

from __future__ import annotations

import torch
from torch import Tensor

from .._shared import UserError
from ._memory import free_memory
from ._split import Split

_SEED = 20220331  # arbitrary, and never changes: every run of every seed holds out the same images
_MOST_CALIBRATION = 1000
_FEWEST_CALIBRATION = 10  # fewer say nothing


def hold_out(split: Split, count: int, num_classes: int) -> tuple[Split, Split]:
    """(training, held out): ``count`` images of all classes, in proportion to their sizes, the same for every run."""
    if split.inputs.nbytes > free_memory():  # a mapped file, of which copies cannot be made
        raise UserError(
            "holdout copies the training samples, which do not fit into memory: put some into a folder val, and use "
            "validation=true"
        )
    return parted(split, held_out_rows(split.labels, count, num_classes))


def held_out_rows(labels: Tensor, count: int, num_classes: int) -> Tensor:
    """Which samples :func:`hold_out` takes, (m,) bool."""
    total = len(labels)
    if not 0 < count < total:
        raise UserError(f"holdout must lie between 1 and {total - 1} for these {total} training images, got {count}")
    return stratified(labels, count, num_classes, seed=_SEED)


def calibration_count(total: int, share: float) -> int:
    """How many of the training samples are set aside for calibration, if all classes are large enough.

    >>> calibration_count(1437, 0.1), calibration_count(60_000, 0.1), calibration_count(60, 0.1)
    (143, 1000, 0)
    """
    count = min(_MOST_CALIBRATION, int(share * total))
    return count if count >= _FEWEST_CALIBRATION else 0


def aside_rows(labels: Tensor, share: float, num_classes: int) -> Tensor:
    """Which samples are set aside for calibration, (m,) bool: a share of every class, of which two samples stay.

    None are if there are too few.
    """
    count = calibration_count(len(labels), share)
    held = stratified(labels, count, num_classes, seed=_SEED, keep=2)
    return held if int(held.sum()) >= _FEWEST_CALIBRATION else torch.zeros_like(held)


def can_be_parted(split: Split) -> bool:
    """Whether there is memory for copies of the samples; a mapped file takes none as long as it is not copied."""
    return split.inputs.nbytes <= free_memory() / 2


def parted(split: Split, held: Tensor) -> tuple[Split, Split]:
    """(the others, those of ``held``), as copies."""
    return (Split(split.inputs[~held], split.labels[~held]), Split(split.inputs[held], split.labels[held]))


def stratified(labels: Tensor, count: int, num_classes: int, *, seed: int, keep: int = 0) -> Tensor:
    """Which samples to set aside, (m,) bool: ``count`` of them, from each class in proportion to its size.

    At least ``keep`` samples of every class stay, so fewer than ``count`` may be set aside.
    """
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    sizes = torch.bincount(labels, minlength=num_classes)
    exact = sizes * count / len(labels)
    take = exact.floor().long()
    short = count - int(take.sum())
    take[(exact - take).argsort(descending=True, stable=True)[:short]] += 1
    take = torch.minimum(take, (sizes - keep).clamp_min(0))
    by_class = order[labels[order].argsort(stable=True)]
    of = labels[by_class]
    place = torch.arange(len(labels)) - (sizes.cumsum(0) - sizes)[of]  # within the class, in the drawn order
    held = torch.zeros(len(labels), dtype=torch.bool)
    held[by_class[place < take[of]]] = True
    return held


def drawn_test_set(labels: Tensor, share: float, num_classes: int, *, seed: int) -> Tensor:
    """Which samples of people's own data are the test set, (m,) bool: a share of every class, of which one stays."""
    return stratified(labels, max(1, round(share * len(labels))), num_classes, seed=seed, keep=1)


def with_label_noise(split: Split, share: float, num_classes: int, *, seed: int) -> Split:
    """A share of the labels replaced by labels drawn from all classes, so that 1/k of the replaced ones stay right."""
    generator = torch.Generator().manual_seed(seed)
    replaced = torch.randperm(len(split.labels), generator=generator)[: round(share * len(split.labels))]
    labels = split.labels.clone()
    labels[replaced] = torch.randint(num_classes, (len(replaced),), generator=generator)
    return Split(split.inputs, labels)
