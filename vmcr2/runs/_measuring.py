"""Through which eyes a run sees a picture when it measures and predicts: as it is, or as the mean over views of it."""

from __future__ import annotations

from torch import nn

from ..models import ViewMean
from ._config import Config


def measuring(config: Config, network: nn.Module) -> nn.Module:
    """What a run is measured by, and predicts by: the network itself, or its mean over views of a picture."""
    data, run = config.data, config.run
    if not (run.average_flips or run.average_shifts):
        return network
    black = [-mean / std for mean, std in zip(data.mean, data.std, strict=True)]
    return ViewMean(network, flips=run.average_flips, shift=run.average_shifts, black=black)
