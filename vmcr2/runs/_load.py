"""Loads a finished run from its folder, to predict with it. The training data are not needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .._shared import UserError
from ..classifiers import NearestSubspace
from ..data import Preparation, describe
from ..inference import Confidence
from ..models import load_into
from ..objectives import Objective
from ..training import choose_device
from ._checked import check_confidence, check_finite, check_names, check_shape, check_subspaces, readable
from ._config import Config
from ._folder import RunFolder
from ._inputs import InputForm
from ._parts import built, classifier_from
from ._pretrained import from_pretrained
from ._records import read_record
from ._run import Run
from ._tensor_files import read_tensors, read_tensors_with_metadata


def load_run(path: Path | str, *, device: str = "auto") -> Run:
    """A finished run from its folder alone: network, classifier, objective and figures.

    A folder that :meth:`Run.save_pretrained` wrote is taken too, as :func:`from_pretrained` does.

    >>> import tempfile
    >>> import vmcr2
    >>> from vmcr2.data import open_data
    >>> test = open_data("digits").test()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = vmcr2.fit(vmcr2.recipe("digits", epochs=20), out=f"{folder}/mine")
    ...     run = vmcr2.load_run(f"{folder}/mine")
    >>> run.predict(test.images[:3])
    ['7', '6', '3']
    >>> predicted = run.predict(test.images, labels=True)
    >>> (predicted.cpu() == test.labels).double().mean().item() == run.summary["test_accuracy"]
    True
    """
    folder = RunFolder(Path(path))
    if folder.is_pretrained:
        return from_pretrained(path, device=device)
    config = folder.read_config()
    chosen = choose_device(device)
    subspaces = read_subspaces(folder, config)
    classes = len(subspaces["bases"])  # of its own data, which may be fewer than published
    network, objective = built(config, _sample_shape(folder, config), classes, chosen)
    return restored(folder, config, network, objective, subspaces)


def _sample_shape(folder: RunFolder, config: Config) -> tuple[int, ...]:
    """From the manifest. Folders of 0.3 do not say, but they have known data sets."""
    found = folder.about_data.get("sample_shape")
    return check_shape(folder.manifest, found) if found else describe(config.data.name).image_shape


def read_subspaces(folder: RunFolder, config: Config) -> dict[str, Tensor]:
    """``bases`` and ``energies`` of a finished run that kept its weights."""
    _check_weights(folder)
    found = read_tensors(folder.subspaces)
    check_subspaces(folder.subspaces, found, config.model.dim)
    return found


def _check_weights(folder: RunFolder) -> None:
    folder.read_summary()  # an error if the run did not finish
    if not folder.model.exists():
        raise UserError(
            f"{folder.model} is missing: a sweep keeps its runs' weights with --keep-weights, and a copy of a run "
            "needs all its .safetensors files"
        )


def start_from(network: nn.Module, path: str) -> list[str]:
    """Copy a finished run's weights into a network; the names of what did not fit, and is left as it was drawn."""
    folder = RunFolder(Path(path))
    folder.read_config()  # an error if it is not a run
    _check_weights(folder)
    return load_into(network, read_tensors(folder.model), partial=True)


def restored(
    folder: RunFolder, config: Config, network: nn.Module, objective: Objective, subspaces: dict[str, Tensor]
) -> Run:
    """The run of a folder. Its weights are loaded into this network and objective."""
    try:
        for path, part in ((folder.model, network), (folder.objective, objective.module)):
            if path == folder.model or path.exists():
                learned = read_tensors(path)
                check_finite(path, learned)
                part.load_state_dict(learned)
    except RuntimeError as error:
        why = " ".join(str(error).split())
        raise UserError(f"the weights in {folder.path} do not fit its config.json: {why}") from error
    classifier = classifier_from(config, subspaces["bases"], subspaces["energies"])
    device = next(network.parameters()).device
    run = finished_run(folder, config, folder.read_summary(), network, classifier.to(device), objective)
    return replace(run, confidence=_read_confidence(folder, config, has_head=objective.head is not None))


def finished_run(
    folder: RunFolder,
    config: Config,
    summary: dict[str, Any],
    network: nn.Module,
    classifier: NearestSubspace,
    objective: Objective,
) -> Run:
    """A run from its parts and from what its folder says of the data; not calibrated."""
    kept = folder.preparation
    with readable(kept):
        made = Preparation.from_json_dict(read_record(kept)) if kept.exists() else None
    form = InputForm(_sample_shape(folder, config), config.data.fit, made)
    classes = len(classifier.bases)
    names = check_names(folder.manifest, folder.class_names or tuple(map(str, range(classes))), classes)
    return Run(folder.path, config, summary, network.eval(), classifier, objective.module, objective.head, names, form)


def _read_confidence(folder: RunFolder, config: Config, *, has_head: bool) -> Confidence | None:
    """None for runs of earlier versions, and if nothing was set aside."""
    if not folder.confidence.exists():
        return None
    tensors, metadata = read_tensors_with_metadata(folder.confidence)
    with readable(folder.confidence):
        found = Confidence.from_tensors(tensors, metadata.get("origin", ""))
    check_confidence(folder.confidence, found, config, has_head=has_head)
    return found
