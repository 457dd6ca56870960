"""Maximal coding rate reduction, exact and variational: features on orthogonal class subspaces."""

from typing import TYPE_CHECKING, Any

from ._shared import CollapseWarning
from ._version import __version__
from .classifiers import NearestSubspace
from .functional import RateTerms, VariationalTerms, coding_rate, rate_reduction, variational_logdet
from .losses import MCR2Loss, VMCR2Loss

if TYPE_CHECKING:
    from .runs import Callback, Config, Run, fit, from_pretrained, load_run, recipe

__all__ = [
    "Callback",
    "CollapseWarning",
    "Config",
    "MCR2Loss",
    "NearestSubspace",
    "RateTerms",
    "Run",
    "VMCR2Loss",
    "VariationalTerms",
    "__version__",
    "coding_rate",
    "fit",
    "from_pretrained",
    "load_run",
    "rate_reduction",
    "recipe",
    "variational_logdet",
]


def __getattr__(name: str) -> Any:
    # the trainer brings numpy and safetensors along: losses in somebody's own loop need not wait for them
    if name in ("Callback", "Config", "Run", "fit", "from_pretrained", "load_run", "recipe"):
        from . import runs

        return getattr(runs, name)
    raise AttributeError(f"module 'vmcr2' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
