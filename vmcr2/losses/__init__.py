"""Losses to minimise: ``loss(z, labels)``. A negative value is normal: it is minus a rate reduction."""

from ._cross_entropy import CrossEntropyLoss
from ._mcr2 import MCR2Loss
from ._vmcr2 import VMCR2Loss

__all__ = ["CrossEntropyLoss", "MCR2Loss", "VMCR2Loss"]
