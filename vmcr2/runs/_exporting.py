"""A run as one file for other programs: its pipeline, and what the file says about it."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._shared import UserError
from .._version import __version__
from ..inference import OUTPUTS, Exported, Pipeline, Plain, check_target, export
from ._views import with_views

if TYPE_CHECKING:
    from ._run import Run

_BATCHES = (1, 2, 7)
_FALSE_ALARMS = (0.01, 0.05)
FORMAT = 1


def export_run(run: Run, path: Path, *, force: bool) -> Exported:
    """Write the run's pipeline; see :meth:`Run.export`."""
    check_target(path, force=force)
    plain_run = _on_the_cpu(run)
    pipeline = pipeline_of(plain_run)

    def original(x: Tensor) -> tuple[Tensor, ...]:
        features = plain_run.features_of(x)
        answers = plain_run.answers_of(features)
        return answers.labels, answers.probabilities, answers.novelty, features

    trials = _trials(plain_run, pipeline)
    return export(pipeline, path, about(run), original=original, trials=trials, force=force)


def pipeline_of(run: Run) -> Pipeline:
    """What the run does with uint8 pictures or prepared rows, as one module."""
    shape, data = run.form.shape, run.config.data
    plain = None
    if len(shape) == 3:
        plain = Plain((shape[0], shape[1], shape[2]), data.image_size, data.mean, data.std)
    return Pipeline(plain, with_views(run.config, run.model, shape), run.readout_by(run.readout), shape)


def about(run: Run) -> dict[str, Any]:
    """What a reader of the file must know, of JSON's types."""
    said: dict[str, Any] = {
        "format": FORMAT,
        "vmcr2": __version__,
        "title": run.config.title,
        "class_names": list(run.class_names),
        "input_shape": list(run.form.shape),
        "outputs": list(OUTPUTS),
        "readout": run.readout,
        "calibrated": run.confidence is not None,
        "thresholds": thresholds(run),
    }
    if run.confidence is not None:
        said["calibration"] = {"origin": run.confidence.origin, "samples": run.confidence.samples}
    if run.form.is_pictures:
        said |= {"kind": "pictures", "fit": run.form.fit}
    else:
        said["kind"] = "rows"
        if run.form.preparation is not None:
            said["columns"] = list(run.form.preparation.columns)
            said["preparation"] = run.form.preparation.to_json_dict()
    return said


def thresholds(run: Run) -> dict[str, float]:
    """By the false-alarm rate: the novelty above which a sample is refused. Rates that need more samples are absent."""
    found = {}
    for rate in _FALSE_ALARMS:
        with suppress(UserError):
            found[f"{rate:g}"] = run.threshold(rate)
    return found


def _on_the_cpu(run: Run) -> Run:
    """A copy that computes as the file will: in float32, without a GPU."""
    model = deepcopy(run.model).cpu().float().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return replace(
        run,
        config=run.config.replace(precision="float32"),
        model=model,
        classifier=deepcopy(run.classifier).cpu(),
        head=None if run.head is None else deepcopy(run.head).cpu().float(),
    )


def _trials(run: Run, pipeline: Pipeline) -> list[Tensor]:
    """Pictures that the run has kept, if they have their full size; drawn ones otherwise."""
    pictures = run.kept.pictures if run.has_kept else None
    if pictures is not None and pictures.shape[1:] == run.form.shape and len(pictures) >= sum(_BATCHES):
        spread = torch.linspace(0, len(pictures) - 1, sum(_BATCHES)).long()  # over the classes
        return list(torch.split(pictures[spread], list(_BATCHES)))
    return pipeline.trials(_BATCHES)
