"""One class more for a trained run: a subspace of the features of a few samples, without training.

A subspace of a few samples has few dimensions and leaves much of its own class outside. Compared by bare residuals,
almost nothing would be nearest to it. So the residual of an added class is multiplied by a number up to 1: as small as
it can be while few known samples go over to added classes. The samples that the run was calibrated on say how many.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from .._shared import UserError
from ..classifiers import NearestSubspace
from ..functional import class_subspaces, nearest_subspaces, subspace_residuals

if TYPE_CHECKING:
    from ._run import Run

_TAKEN = 0.03
"""Of the known samples that were right, the share that all added classes together may take: docs/new-classes.md."""
_FOLDS = 20
_TINY = 1e-7  # below what float32 can say of a residual


class Fairness(NamedTuple):
    """What makes added classes comparable, (k,) each: see :class:`vmcr2.inference.Readout`. 1 for trained classes."""

    scales: Tensor
    gains: Tensor


def check_new_name(run: Run, name: str) -> None:
    """A class needs a name that the run does not have."""
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"a class needs a name, got {name!r}")
    if name in run.class_names:
        raise UserError(f"the run has a class {name} already: choose another name")


def with_class(run: Run, name: str, features: Tensor) -> Run:
    """The run with the class ``name`` beside its own; (n, d) are features of samples of it."""
    bases, energies = run.classifier.bases, run.classifier.energies
    features = features.float()
    new_basis, new_energies = _subspace(features, bases.shape[2])
    count = new_basis.shape[1]
    # the subspaces of all classes have one shape: columns that are zero catch nothing
    basis, energy = bases.new_zeros(1, *bases.shape[1:]), energies.new_zeros(1, energies.shape[1])
    basis[0, :, :count] = new_basis
    # the samples themselves lie inside: the energies sum to what is expected of others
    energy[0, :count] = new_energies * (_share_inside(features, bases.shape[2]) / new_energies.sum())
    classifier = NearestSubspace(len(bases) + 1, bases.shape[2])
    classifier.subspace_bases = torch.cat([bases, basis])
    classifier.subspace_energies = torch.cat([energies, energy])
    confidence = run.confidence.without_head() if run.confidence is not None else None
    return replace(
        run,
        classifier=classifier,
        class_names=(*run.class_names, name),
        added=(*run.added, name),
        confidence=confidence,
    )


def fairness(run: Run) -> Fairness:
    """Of a run with added classes. It follows from the subspaces, so the order of adding does not matter."""
    bases, added = run.classifier.bases, len(run.added)
    scales, gains = bases.new_ones(len(bases)), bases.new_ones(len(bases))
    known = run.confidence.features if run.confidence is not None else None
    if known is None or not len(known) or not added:
        return Fairness(scales, gains)
    known = known.to(bases.device)
    own = nearest_subspaces(known, bases[:-added], 1).scores.clamp_min(_TINY)
    # a sample goes over where this is above the scale
    ratios = own / subspace_residuals(known, bases[-added:]).clamp_min(_TINY)
    # one rank for all added classes: a sample is lost if any of them takes it; the quantile is conformal prediction's
    ranks = ratios.argsort(0).argsort(0).amax(1).sort().values
    place = ranks[min(math.ceil((len(known) + 1) * (1 - _TAKEN)), len(known)) - 1]
    scales[-added:] = ratios.sort(0).values[place].clamp_max(1.0)
    # a typical sample of the new class gets the novelty of a typical known one
    inside = run.classifier.energies[-added:].sum(1)
    gains[-added:] = ((1.0 - own.mean()) / inside.clamp_min(_TINY)).clamp_min(1.0)
    return Fairness(scales, gains)


def _subspace(features: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Basis (d, r) and energies (r,) of one class, r at most the number of samples."""
    labels = torch.zeros(len(features), dtype=torch.int64, device=features.device)
    found = class_subspaces(features, labels, 1, num_components=min(most, len(features)))
    return found.bases[0], found.energies[0]


def _share_inside(features: Tensor, most: int) -> float:
    """The share of a new sample's energy that the subspace is expected to catch: each part by that of the others.

    One sample that lies inside is counted too. So a single sample, which says nothing of others, gives 1.
    """
    inside = 1.0
    folds = torch.arange(len(features), device=features.device) % min(len(features), _FOLDS)
    for fold in range(min(len(features), _FOLDS) if len(features) > 1 else 0):
        basis, _ = _subspace(features[folds != fold], most)
        inside += float((features[folds == fold] @ basis).square().sum())
    return inside / (len(features) + 1 if len(features) > 1 else 1)
