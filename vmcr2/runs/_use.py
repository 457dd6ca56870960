"""What a run keeps for those who use it: how sure it may be, and training samples to compare with."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from ..data import Split
from ..inference import KeptSamples, confidence_error
from ._folder import RunFolder
from ._measure import TrainingSide
from ._report_tensors import first_of_each, thumbnails
from ._run import Run, learned_confidence
from ._tensor_files import write_tensors


class CalibrationSamples(NamedTuple):
    """Samples that were not trained on."""

    features: Tensor
    labels: Tensor
    origin: str


def calibrated(run: Run, samples: CalibrationSamples | None, *, unseen_features: Tensor, unseen: Split) -> Run:
    """The run with its confidence. Its summary says on how many samples it rests, and how good the probabilities are.

    They are measured on the test set. On a hold-out they were fitted, so there is nothing to measure.
    """
    run.summary["calibration_samples"] = 0 if samples is None else len(samples.labels)
    if samples is None:
        return run
    run = replace(run, confidence=learned_confidence(run, samples.features, samples.labels, samples.origin))
    if samples.features is not unseen_features:
        labels, top = unseen.labels.to(unseen_features.device), run.top_answers_of(unseen_features, 1)
        right = top.labels[:, 0] == labels
        run.summary["calibration_error"] = confidence_error(top.probabilities[:, 0], right)
    return run


def write_use(folder: RunFolder, run: Run, side: TrainingSide, train: Split, places: Tensor) -> None:
    """Write both into the run's folder. ``places`` are those of ``train`` in the whole training set."""
    if run.confidence is not None:
        write_tensors(folder.confidence, run.confidence.tensors(), {"origin": run.confidence.origin})
    if run.config.run.kept_samples:
        write_tensors(folder.kept_samples, _kept(run, side, train, places).tensors())


def _kept(run: Run, side: TrainingSide, train: Split, places: Tensor) -> KeptSamples:
    """The first samples of every class, as many of each."""
    num_classes = len(run.class_names)
    per_class = max(1, run.config.run.kept_samples // num_classes)
    chosen = first_of_each(side.labels, num_classes, per_class)
    chosen = chosen[:: max(1, -(-len(chosen) // run.config.run.kept_samples))]  # of more classes than room, some
    here = chosen.cpu()
    pictures = thumbnails(train, here) if train.inputs.ndim == 4 else None
    return KeptSamples(side.features[chosen].half().cpu(), side.labels[chosen].cpu(), places[here], pictures)
