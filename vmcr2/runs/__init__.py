"""Runs: from a configuration to a run folder and back. Everything that touches a run's files is here."""

from .._shared import UserError as UserError
from ..training import TrainingError as TrainingError
from ._callbacks import Callback as Callback
from ._checkpoint import find_checkpoint as find_checkpoint, read_position as read_position
from ._config import (
    ALL_SETTINGS as ALL_SETTINGS,
    Config as Config,
    check_setting as check_setting,
    deciding_settings as deciding_settings,
    read_settings as read_settings,
)
from ._early_stopping import held_out_accuracy as held_out_accuracy
from ._extend import is_finished as is_finished
from ._fit import evaluate_run as evaluate_run, fit as fit
from ._folder import FORMAT as FORMAT, RunFolder as RunFolder
from ._load import load_run as load_run
from ._logs import TensorBoardLog as TensorBoardLog, WandbLog as WandbLog, log_named as log_named
from ._manifest import git_commit as git_commit
from ._pretrained import from_pretrained as from_pretrained
from ._recipes import (
    AUTO as AUTO,
    FAMILIES as FAMILIES,
    RECIPES as RECIPES,
    default_origin as default_origin,
    find_recipe as find_recipe,
    is_own_data as is_own_data,
    recipe as recipe,
    recipe_for as recipe_for,
)
from ._records import (
    DamagedError as DamagedError,
    read_lines as read_lines,
    read_record as read_record,
    write_text as write_text,
)
from ._run import Run as Run
from ._settings import RunSettings as RunSettings
from ._tensor_files import read_tensors as read_tensors, read_tensors_with_metadata as read_tensors_with_metadata
from ._trainer import Trainer as Trainer
