"""A run as people publish it: config.json, model.safetensors and a model card, as the Hugging Face hub expects."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .._shared import UserError
from .._version import __version__
from ..data import Preparation
from ..inference import Confidence
from ..objectives import Objective
from ..training import choose_device
from ._card import model_card
from ._config import Config
from ._folder import MODEL_TYPE, RunFolder
from ._inputs import InputForm
from ._parts import built, classifier_from
from ._records import DamagedError, read_record, write_record, write_text
from ._tensor_files import read_tensors, tensors_under, write_tensors

if TYPE_CHECKING:
    from ._run import Run

FORMAT = 1
_CARD = "README.md"
_PATHS = ("data_path", "test_path", "weights", "start_from")
"""Settings that name files of the person who trained: only the last part of each is published."""


def save_pretrained(run: Run, path: Path, *, kept_samples: bool) -> None:
    """Write the run; see :meth:`Run.save_pretrained`."""
    _check_free(path)
    keeps = kept_samples and run.has_kept
    tensors = {f"network.{name}": value for name, value in run.model.state_dict().items()}
    tensors |= {f"objective.{name}": value for name, value in run.objective.state_dict().items()}
    tensors |= {"subspaces.bases": run.classifier.bases, "subspaces.energies": run.classifier.energies}
    if run.confidence is not None:
        tensors |= {f"calibration.{name}": value for name, value in run.confidence.tensors().items()}
    folder = RunFolder(path)
    config = _described(run)
    try:
        path.mkdir(parents=True, exist_ok=True)
        write_tensors(folder.model, tensors, {"format": "pt"})
        if keeps:
            write_tensors(folder.kept_samples, run.kept.tensors())
        write_text(path / _CARD, model_card(run, keeps_samples=keeps))
        write_record(folder.config, config)  # last: a folder without it is not a model
    except OSError as error:
        raise UserError(f"cannot write to {path}: {error.strerror or error}") from error


def from_pretrained(path: Path | str, *, device: str = "auto") -> Run:
    """A run from a folder that :meth:`Run.save_pretrained` wrote. It needs the folder alone.

    Predictions are those of the run that was saved: bit for bit on a CPU. No code in the folder is run. Only a network
    of a person's own, ``module:factory``, is imported by its name.

    Args:
        path: a local folder. Of a model on the Hugging Face hub: what ``huggingface_hub.snapshot_download`` returns.
        device: auto, cpu or cuda.

    >>> import tempfile
    >>> import vmcr2
    >>> from vmcr2.data import open_data
    >>> images = open_data("digits").test().images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = vmcr2.fit(vmcr2.recipe("digits", epochs=2), out=f"{folder}/mine")
    ...     run.save_pretrained(f"{folder}/published")
    ...     again = vmcr2.from_pretrained(f"{folder}/published")
    >>> torch.equal(again.predict_proba(images), run.predict_proba(images))
    True
    """
    folder = RunFolder(Path(path))
    kept = _read_config(folder)
    try:
        config = Config.from_flat(kept["settings"])
        names, added = tuple(map(str, kept["class_names"])), tuple(map(str, kept["added_classes"]))
        preparation = None if kept["preparation"] is None else Preparation.from_json_dict(kept["preparation"])
        form = InputForm(tuple(map(int, kept["sample_shape"])), config.data.fit, preparation)
        summary, origin = dict(kept["summary"]), (kept["calibration"] or {}).get("origin", "")
    except KeyError as error:
        raise UserError(f"{folder.config} has no {error}: it is damaged, or not of vmcr2") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{folder.config} cannot be used: {error}") from error
    tensors = read_tensors(folder.model)
    network, objective = built(config, form.shape, len(names) - len(added), choose_device(device))
    _fill(network, objective, tensors, folder)
    bases, energies = _subspaces(tensors, len(names), config.model.dim, folder)
    classifier = classifier_from(config, bases, energies).to(next(network.parameters()).device)

    from ._run import Run  # here: a Run loads and saves itself with this module

    parts = (objective.module, objective.head, names, form, None, added)
    run = Run(folder.path, config, summary, network.eval(), classifier, *parts)
    return run if kept["calibration"] is None else replace(run, confidence=_confidence(tensors, run, origin))


def _described(run: Run) -> dict[str, Any]:
    """What ``config.json`` holds."""
    settings = run.config.acting()
    for name in _PATHS:
        if settings.get(name):
            settings[name] = Path(settings[name]).name
    preparation, confidence = run.form.preparation, run.confidence
    return {
        "model_type": MODEL_TYPE,
        "architectures": [type(run.model).__name__],
        "format": FORMAT,
        "vmcr2_version": __version__,
        "torch_version": str(torch.__version__),
        "title": run.config.title,
        "settings": settings,
        "class_names": list(run.class_names),
        "added_classes": list(run.added),
        "sample_shape": list(run.form.shape),
        "preparation": None if preparation is None else preparation.to_json_dict(),
        "summary": _finite(run.summary),
        "calibration": None if confidence is None else {"origin": confidence.origin, "samples": confidence.samples},
    }


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity, and the hub refuses them: null instead."""
    if isinstance(value, Mapping):
        return {key: _finite(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _check_free(path: Path) -> None:
    """Nothing is overwritten. A clone of an empty repository, with git's own files only, counts as empty."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file: name a new or an empty folder")
    if path.exists() and any(not part.name.startswith(".git") for part in path.iterdir()):
        raise UserError(f"{path} is not empty, and nothing is overwritten: name a new or an empty folder")


def _read_config(folder: RunFolder) -> dict[str, Any]:
    path = folder.path
    if not path.is_dir():
        raise UserError(
            f"there is no folder {path}: for a model on the Hugging Face hub, give the folder that "
            "huggingface_hub.snapshot_download returns"
        )
    if folder.manifest.exists():
        raise UserError(f"{path} is a run's own folder: use vmcr2.load_run")
    if not folder.config.exists():
        raise UserError(f"{path} has no config.json: it was not written by run.save_pretrained")
    folder.check_files()
    try:
        kept = read_record(folder.config)
    except DamagedError as error:
        raise UserError(f"{error}: save or download the model again") from error
    if kept.get("model_type") != MODEL_TYPE:
        found = kept.get("model_type", "unknown")
        raise UserError(f"{path} is a model of the type {found}, not of vmcr2: it was not written by save_pretrained")
    if kept.get("format") != FORMAT:
        raise UserError(
            f"{path} has the format {kept.get('format')} of vmcr2 {kept.get('vmcr2_version')}, but this vmcr2 "
            f"({__version__}) reads format {FORMAT}: use that version"
        )
    return kept


def _fill(network: nn.Module, objective: Objective, tensors: Mapping[str, Tensor], folder: RunFolder) -> None:
    for part, prefix in ((network, "network."), (objective.module, "objective.")):
        try:
            part.load_state_dict(tensors_under(prefix, tensors))
        except RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise UserError(f"{folder.model} does not fit its config.json: {' '.join(lines[1:2] or lines)}") from error


def _subspaces(tensors: Mapping[str, Tensor], classes: int, dim: int, folder: RunFolder) -> Iterable[Tensor]:
    found = tensors_under("subspaces.", tensors)
    bases, energies = found.get("bases"), found.get("energies")
    if bases is None or energies is None or bases.ndim != 3 or bases.shape[:2] != (classes, dim):
        shape = "none" if bases is None else "×".join(map(str, bases.shape))
        raise UserError(
            f"{folder.model} does not fit its config.json: the subspaces of {classes} classes with {dim} features are "
            f"{classes}×{dim}×r, and it has {shape}"
        )
    return bases, energies


def _confidence(tensors: Mapping[str, Tensor], run: Run, origin: str) -> Confidence:
    found = tensors_under("calibration.", tensors)
    novelty_by = run.readout_by(run.readout).novelty_by
    for name in (f"temperature.{run.readout}", f"novelty.{novelty_by}"):
        if name not in found:
            file = RunFolder(run.folder).model
            raise UserError(f"{file} does not fit its config.json: it has no calibration.{name}")
    return Confidence.from_tensors(found, origin)
