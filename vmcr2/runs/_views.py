"""The network as a run measures and predicts by it: alone, or averaged over views of a picture."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from ..models import ViewMean
from ._config import Config


def with_views(config: Config, network: nn.Module, sample_shape: Sequence[int]) -> nn.Module:
    """The network's mean over the views that the settings name; the network itself if there are none.

    Rows have no views, whatever the settings say: a recipe for pictures can be given rows.
    """
    data, run = config.data, config.run
    if len(sample_shape) != 3 or not (run.average_flips or run.average_shifts):
        return network
    black = [-mean / std for mean, std in zip(data.mean, data.std, strict=True)]
    return ViewMean(network, flips=run.average_flips, shift=run.average_shifts, black=black)
