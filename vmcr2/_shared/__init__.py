"""What several rooms need and none owns: errors for people, files, suggestions, precision, streams. Torch only."""

from ._errors import UserError
from ._files import atomic, lock
from ._precision import PreciseBuffers, precise_dtype
from ._streams import Aside
from ._suggest import did_you_mean
from ._triton import fits_triton

__all__ = [
    "Aside",
    "PreciseBuffers",
    "UserError",
    "atomic",
    "did_you_mean",
    "fits_triton",
    "lock",
    "precise_dtype",
]
