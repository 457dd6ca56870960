"""Dropout that can be put to rest for the last part of a run.

Features are measured without dropout, but the objective sees them with it. Its noise spreads the samples of a class,
and R takes that spread for the features' own: on MNIST training batches fill twelve dimensions per class where the
features, measured, fill five (docs/recipe.md).
"""

from __future__ import annotations

from torch import nn


class Dropouts:
    """The dropout layers of a network, and the probabilities that they came with."""

    def __init__(self, network: nn.Module) -> None:
        self._layers = [(part, part.p) for part in network.modules() if isinstance(part, nn.Dropout)]
        self._resting = False

    def rest(self, resting: bool) -> bool:
        """Switch them off, or on again; whether that changes anything."""
        changed = resting != self._resting and bool(self._layers)
        self._resting = resting
        for part, own in self._layers:
            part.p = 0.0 if resting else own  # not part.eval(): who measures in between sets all modes anew
        return changed
