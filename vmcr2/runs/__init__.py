"""Runs: from a configuration to a run folder and back. Everything that touches a run's files is here."""

from .._shared import UserError
from ..training import TrainingError
from ._checkpoint import read_position
from ._config import ALL_SETTINGS, Config, check_setting, deciding_settings
from ._evaluate_run import evaluate_run
from ._fit import fit
from ._folder import FORMAT, RunFolder, read_tensors, write_text
from ._load import load_run
from ._manifest import git_commit
from ._recipes import FAMILIES, RECIPES, default_origin, find_recipe, recipe
from ._run import Listener, Run
from ._trainer import Trainer

__all__ = [
    "ALL_SETTINGS",
    "FAMILIES",
    "FORMAT",
    "RECIPES",
    "Config",
    "Listener",
    "Run",
    "RunFolder",
    "Trainer",
    "TrainingError",
    "UserError",
    "check_setting",
    "deciding_settings",
    "default_origin",
    "evaluate_run",
    "find_recipe",
    "fit",
    "git_commit",
    "load_run",
    "read_position",
    "read_tensors",
    "recipe",
    "write_text",
]
