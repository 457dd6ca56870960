"""Dropout that can be switched off for the last part of a run.

Features are measured without dropout, but the objective sees them with it. Its noise spreads the samples of a class,
and R counts that spread as the features' own: on MNIST training batches fill twelve dimensions per class where the
measured features fill five (docs/tuning-log.md).
"""

from __future__ import annotations

from torch import nn


class Dropouts:
    """The dropout layers of a network, and their own probabilities."""

    def __init__(self, network: nn.Module) -> None:
        self._layers = [(part, part.p) for part in network.modules() if isinstance(part, nn.Dropout)]
        self._off = False

    def switch(self, *, off: bool) -> bool:
        """Switch them off, or on again. Returns whether that changes anything."""
        changed = off != self._off and bool(self._layers)
        self._off = off
        for part, own in self._layers:
            part.p = 0.0 if off else own  # not part.eval(): who measures in between sets all modes
        return changed
