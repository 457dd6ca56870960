"""One class more for a trained run: a subspace of the features of a few samples, without training."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .._shared import UserError
from ..classifiers import NearestSubspace
from ..functional import class_subspaces

if TYPE_CHECKING:
    from ._run import Run


def with_class(run: Run, name: str, features: Tensor) -> Run:
    """The run with the class ``name`` beside its own; (n, d) are features of samples of it."""
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"a class needs a name, got {name!r}")
    if name in run.class_names:
        raise UserError(f"the run has a class {name} already: choose another name")
    bases, energies = run.classifier.bases, run.classifier.energies
    labels = torch.zeros(len(features), dtype=torch.int64, device=features.device)
    count = min(bases.shape[2], len(features))
    new = class_subspaces(features.float(), labels, 1, num_components=count)
    # the subspaces of all classes have one shape: columns that are zero catch nothing
    basis, energy = bases.new_zeros(1, *bases.shape[1:]), energies.new_zeros(1, energies.shape[1])
    basis[:, :, :count], energy[:, :count] = new.bases, new.energies
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
