"""What several packages need and none owns: errors, files, settings, precision, streams. It imports only torch."""

from ._errors import UserError
from ._files import LOCK, atomic, lock
from ._kinds import described, parse
from ._precision import PreciseBuffers, precise_dtype
from ._settings import Known, Rule, Settings, setting
from ._streams import Aside
from ._suggest import did_you_mean
from ._triton import fits_triton

__all__ = [
    "LOCK",
    "Aside",
    "Known",
    "PreciseBuffers",
    "Rule",
    "Settings",
    "UserError",
    "atomic",
    "described",
    "did_you_mean",
    "fits_triton",
    "lock",
    "parse",
    "precise_dtype",
    "setting",
]
