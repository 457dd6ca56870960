"""The parts of a run, built again to be filled with what was kept: network, objective, subspaces."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..classifiers import NearestSubspace
from ..objectives import Objective
from ..training import Numerics, forked_random
from ._checked import enough_memory
from ._config import Config
from ._measure import classifier_of


def built(
    config: Config, sample_shape: tuple[int, ...], classes: int, device: torch.device
) -> tuple[nn.Module, Objective]:
    """Network and objective for samples of this shape. Their weights are drawn, and are to be replaced."""
    numerics = Numerics.choose(device, config.run.precision)
    with forked_random(device), enough_memory():
        network = numerics.place(config.model.build(config.data.input_shape(sample_shape), with_weights=False))
        objective = config.objective.build(classes, config.model.dim, torch.arange(classes), config.optim.batch_size)
    objective.module.to(device)
    return network, objective


def classifier_from(config: Config, bases: Tensor, energies: Tensor) -> NearestSubspace:
    """The classifier of these subspaces."""
    classifier = classifier_of(config, len(bases))
    none = torch.zeros(0)  # the moments it was fitted from are not kept
    classifier.load_state_dict({"subspace_bases": bases, "subspace_energies": energies, "scatter": none, "sizes": none})
    return classifier
