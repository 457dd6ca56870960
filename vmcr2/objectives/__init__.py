"""Objectives: one file each. An objective owns its settings, its state and its life; a new one is a new file here."""

from ._ce import CESettings as CESettings
from ._mcr2 import MCR2Settings as MCR2Settings
from ._objective import Objective as Objective, ObjectiveSettings as ObjectiveSettings
from ._vmcr2 import VMCR2Settings as VMCR2Settings

OBJECTIVES: dict[str, type[ObjectiveSettings]] = {kind.name: kind for kind in (VMCR2Settings, MCR2Settings, CESettings)}
"""By the name that a configuration gives them."""
