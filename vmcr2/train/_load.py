"""A finished run from its folder: to go on working with, without its training data."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from .._shared import UserError
from ..data._catalogue import describe
from ..models import build
from ._config import Config
from ._evaluate import classifier_of
from ._folder import RunFolder, read_tensors
from ._numerics import choose_device, forked_random, placed
from ._objective import Objective, build_objective
from ._run import Run


def load_run(path: Path | str, *, device: str = "auto") -> Run:
    """A finished run from its folder alone: network, classifier, objective and figures.

    >>> import tempfile
    >>> import vmcr2
    >>> from vmcr2.data import open_data
    >>> test = open_data("digits").test()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = vmcr2.fit(vmcr2.recipe("digits", epochs=3), out=f"{folder}/mine")
    ...     run = vmcr2.load_run(f"{folder}/mine")
    >>> predicted = run.predict(test.images)
    >>> (predicted.cpu() == test.labels).double().mean().item() == run.summary["test_accuracy"]
    True
    """
    folder = RunFolder(Path(path))
    config = folder.read_config()
    chosen = choose_device(device)
    subspaces = read_subspaces(folder)
    classes = len(subspaces["bases"])  # as many as its own data had, whatever was published
    with forked_random(chosen):  # weights are drawn, and then replaced
        network = placed(network_of(config, describe(config.data).image_shape[0]), chosen)
        objective = build_objective(config, torch.arange(classes), classes).to(chosen)
    return restored(folder, config, network, objective, subspaces)


def read_subspaces(folder: RunFolder) -> dict[str, Tensor]:
    """Of a run that has finished and kept its weights: ``bases`` and ``energies``."""
    folder.read_summary()  # says so where the run did not finish
    if not folder.model.exists():
        raise UserError(f"{folder.model} is missing: a sweep keeps its runs' weights with --keep-weights")
    return read_tensors(folder.subspaces)


def network_of(config: Config, channels: int) -> nn.Module:
    """As the configuration has it, untrained."""
    shape = (channels, config.image_size, config.image_size)
    try:
        return build(
            config.model, dim=config.dim, input_shape=shape, hidden=config.hidden, batch_norm=config.batch_norm
        )
    except ValueError as error:
        raise UserError(str(error)) from error


def restored(
    folder: RunFolder, config: Config, network: nn.Module, objective: Objective, subspaces: dict[str, Tensor]
) -> Run:
    """The run of a folder, its weights put into this network and objective."""
    try:
        network.load_state_dict(read_tensors(folder.model))
        if folder.objective.exists():
            objective.load_state_dict(read_tensors(folder.objective))
    except RuntimeError as error:
        raise UserError(f"the weights in {folder.path} do not fit its config.json: {error}") from error
    bases, energies = subspaces["bases"], subspaces["energies"]
    classifier = classifier_of(config, len(bases))
    none = torch.zeros(0)  # the moments it was fitted from are not kept
    classifier.load_state_dict({"subspace_bases": bases, "subspace_energies": energies, "scatter": none, "sizes": none})
    device = next(network.parameters()).device
    return Run(folder.path, config, folder.read_summary(), network.eval(), classifier.to(device), objective)
