"""Which views of a picture to average when a run is measured: one finished run, measured in six ways."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from vmcr2.classifiers import NearestSubspace
from vmcr2.data import Source, hold_out
from vmcr2.functional import rate_reduction
from vmcr2.runs import load_run

FIT = 10_000
"""Training images that the subspaces are fitted on: all of them would take most of the time."""
VIEWS = ((False, 0), *((True, shift) for shift in (0, 2, 3, 4, 6)))
"""Mirroring and shift: the picture alone, mirrored, and mirrored and moved."""


def by_views(folder: Path, source: Source) -> dict[str, dict[str, float]]:
    """Held-out accuracies, and ΔR of ``FIT`` training images, of a run with a hold-out, by mirroring and shift."""
    run = load_run(folder)
    train, held = hold_out(source.train(), run.config.data.holdout, source.num_classes)
    drawn = torch.randperm(len(train.labels), generator=torch.Generator().manual_seed(0))[:FIT]
    chosen = drawn.sort().values  # in the run's own order: sums are rounded as there
    figures = {}
    for flips, shift in VIEWS:
        with_views = replace(run, config=run.config.replace(average_flips=flips, average_shifts=shift))
        z_train, z_held = with_views.features(train.images[chosen]), with_views.features(held.images)
        labels, truth = train.labels[chosen].to(z_train.device), held.labels.to(z_train.device)
        subspaces = NearestSubspace(source.num_classes, run.config.run.components or None).fit(z_train, labels)
        rates = rate_reduction(z_train.double(), labels, source.num_classes, eps_sq=run.config.objective.eps_sq)
        one = {"subspace": _right(subspaces.predict(z_held), truth), "delta_r": rates.delta.item()}
        if run.head is not None:
            with torch.no_grad():
                one["head"] = _right(run.head(z_held).argmax(1), truth)
        figures[f"{'mirrored' if flips else 'plain'} {shift}"] = one
    return figures


def _right(predicted: torch.Tensor, labels: torch.Tensor) -> float:
    return (predicted == labels).double().mean().item()
