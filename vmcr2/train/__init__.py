"""Training from a configuration to a run folder, on the command line or by :func:`fit`."""

from .._shared import UserError
from ._config import Config
from ._load import load_run
from ._loop import fit
from ._recipes import FAMILIES, RECIPES, find_recipe, recipe
from ._remeasure import evaluate_run
from ._run import Run, TrainingError

__all__ = [
    "FAMILIES",
    "RECIPES",
    "Config",
    "Run",
    "TrainingError",
    "UserError",
    "evaluate_run",
    "find_recipe",
    "fit",
    "load_run",
    "recipe",
]
