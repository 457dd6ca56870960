"""More epochs for a run: its configuration gets the new number, and its summary is kept under another name."""

from __future__ import annotations

import re
from typing import Any

from .._shared import UserError
from ..training import learning_rate
from ._callbacks import Callbacks
from ._checkpoint import Position, find_checkpoint, read_position
from ._config import Config
from ._folder import RunFolder
from ._records import read_record, write_record


def extends(folder: RunFolder, config: Config) -> bool:
    """Whether ``config`` is that of the run but for the number of epochs."""
    own = folder.read_config()
    return (
        own.optim.epochs != config.optim.epochs and own.replace(epochs=config.optim.epochs).acting() == config.acting()
    )


def check_extension(folder: RunFolder, epochs: int) -> None:
    """A run that cannot go on to so many epochs is a :class:`UserError`; nothing is written."""
    own = folder.read_config().optim.epochs
    if (checkpoint := find_checkpoint(folder)) is None:
        if folder.finished:
            raise UserError(
                f"{folder.path} has no checkpoint to go on from (a sweep keeps it with --keep-weights): start a new run"
            )
        return
    position = read_position(checkpoint)
    if not folder.finished and (position.epoch == own or position.stopped_by):
        raise UserError(f"{folder.path} has ended, but is not measured yet: --resume it without --epochs first")
    if epochs <= position.epoch:
        raise UserError(f"{folder.path} has done {position.epoch} epochs already: give --epochs above that")


def extend(folder: RunFolder, config: Config) -> None:
    """Give a run, in a folder that this process holds, the epochs of ``config``.

    ``config.json`` decides: a kill before it is written leaves the run as it was, a kill after it an extended run,
    whose summary :func:`drop_old_summary` removes when it is resumed.
    """
    check_extension(folder, config.optim.epochs)
    if folder.finished:
        done = int(folder.read_summary().get("epochs", folder.read_config().optim.epochs))
        write_record(folder.path / f"summary-{done}-epochs.json", folder.read_summary())
    folder.write_config(config)
    drop_old_summary(folder, config)


def drop_old_summary(folder: RunFolder, config: Config) -> None:
    """Remove a summary that is not of these epochs: a copy of it is kept."""
    if not is_finished(folder, config):
        folder.summary.unlink(missing_ok=True)


def is_finished(folder: RunFolder, config: Config) -> bool:
    """Whether the run has done what ``config`` asks for."""
    if not folder.finished:
        return False
    summary = folder.read_summary()
    planned = summary.get("planned_epochs", summary.get("epochs"))
    return planned in (None, config.optim.epochs)


def earlier_ends(folder: RunFolder) -> dict[int, dict[str, Any]]:
    """The summaries that a run had before it was extended, by the number of epochs that were done."""
    found: dict[int, dict[str, Any]] = {}
    for path in folder.path.glob("summary-*-epochs.json"):
        if matched := re.fullmatch(r"summary-(\d+)-epochs\.json", path.name):
            found[int(matched[1])] = read_record(path)
    return found


def note_the_rate(callbacks: Callbacks, before: Config, config: Config, position: Position, steps: int) -> None:
    """Say what the new number of epochs does to the learning rate."""
    old, new = (learning_rate(one.optim, position.step - late, steps) for one, late in ((before, 1), (config, 0)))
    text = f"{position.epoch} epochs are done, {config.optim.epochs} are asked for"
    if config.optim.schedule != "constant":
        text += (
            f": the {config.optim.schedule} schedule is now that of {config.optim.epochs} epochs, "
            f"so the learning rate goes from {old:.2g} to {new:.2g}"
        )
    callbacks.note(text, None)
