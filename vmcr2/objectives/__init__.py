"""Objectives: one file each. An objective owns its settings, its state and its life; a new one is a new file here."""

from ._ce import CESettings as CESettings
from ._composed import CEMCR2Settings as CEMCR2Settings, CEVMCR2Settings as CEVMCR2Settings
from ._known import OBJECTIVES as OBJECTIVES
from ._mcr2 import MCR2Settings as MCR2Settings
from ._objective import Objective as Objective, ObjectiveSettings as ObjectiveSettings
from ._rows_rule import (
    INPUT_NOISE as INPUT_NOISE,
    ROWS_BATCH as ROWS_BATCH,
    WHOLE_WEIGHT as WHOLE_WEIGHT,
    rows_rule as rows_rule,
)
from ._rule import choose_objective as choose_objective, default_dim as default_dim
from ._vmcr2 import VMCR2Settings as VMCR2Settings
