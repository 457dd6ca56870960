"""What several packages need and none owns: errors, files, settings, precision, streams. It imports only torch."""

from ._errors import CollapseWarning as CollapseWarning, UserError as UserError
from ._files import LOCK as LOCK, atomic as atomic, lock as lock, remove_halves as remove_halves
from ._kinds import described as described, parse as parse, shown as shown
from ._listed import listed as listed
from ._notebook import facts_html as facts_html
from ._precision import PreciseBuffers as PreciseBuffers, precise_dtype as precise_dtype
from ._settings import ABOVE_ZERO as ABOVE_ZERO, Known as Known, Rule as Rule, Settings as Settings, setting as setting
from ._streams import Aside as Aside
from ._suggest import did_you_mean as did_you_mean
from ._tensor_file import (
    CHECKSUM as CHECKSUM,
    tensors_are_whole as tensors_are_whole,
    write_tensor_file as write_tensor_file,
)
from ._triton import fits_triton as fits_triton
