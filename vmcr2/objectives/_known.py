"""The objectives by name."""

from __future__ import annotations

from ._ce import CESettings
from ._composed import CEMCR2Settings, CEVMCR2Settings
from ._mcr2 import MCR2Settings
from ._objective import ObjectiveSettings
from ._vmcr2 import VMCR2Settings

OBJECTIVES: dict[str, type[ObjectiveSettings]] = {
    kind.name: kind for kind in (VMCR2Settings, MCR2Settings, CESettings, CEMCR2Settings, CEVMCR2Settings)
}
"""By the name that a configuration gives them."""
