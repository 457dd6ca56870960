"""Which views of a picture to average when a run is measured: one finished run, measured by many of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from vmcr2.classifiers import NearestSubspace
from vmcr2.data import hold_out, open_settings
from vmcr2.functional import rate_reduction
from vmcr2.runs import load_run

FIT = 10_000
"""Training images that the subspaces are fitted on: all of them would take most of the time."""
VIEWS = ((False, 0), *((True, shift) for shift in (0, 2, 3, 4, 6)))
"""Mirroring and shift."""


def by_views(folder: Path) -> dict[str, dict[str, float]]:
    """Held-out accuracies, and ΔR of training images, of a run with a hold-out, by mirroring and shift."""
    run = load_run(folder)
    data = run.config.data
    source = open_settings(data).training_only()
    train, held = hold_out(source.train(), data.holdout, source.num_classes)
    chosen = torch.randperm(len(train.labels), generator=torch.Generator().manual_seed(0))[:FIT]
    found = {}
    for flips, shift in VIEWS:
        seeing = replace(run, config=run.config.replace(average_flips=flips, average_shifts=shift))
        known, unseen = seeing.features(train.images[chosen]), seeing.features(held.images)
        labels, truth = train.labels[chosen].to(known.device), held.labels.to(known.device)
        subspaces = NearestSubspace(source.num_classes, run.config.run.components or None).fit(known, labels)
        rates = rate_reduction(known.double(), labels, source.num_classes, eps_sq=run.config.objective.eps_sq)
        figures = {"subspace": _right(subspaces.predict(unseen), truth), "delta_r": rates.delta.item()}
        if run.head is not None:
            with torch.no_grad():
                figures["head"] = _right(run.head(unseen).argmax(1), truth)
        found[f"{'mirrored' if flips else 'plain'} {shift}"] = figures
    return found


def _right(predicted: torch.Tensor, labels: torch.Tensor) -> float:
    return (predicted == labels).double().mean().item()
