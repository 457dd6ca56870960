"""Trains a run: from a configuration to a run folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from .._shared import UserError
from ..data import Source, can_be_parted, open_settings
from ..distributed import ALONE, Ranks
from ..training import choose_device, forked_random
from ._callbacks import Callbacks
from ._checked import enough_memory
from ._checkpoint import find_checkpoint, has_checkpoint, read_position
from ._config import Config
from ._early_stopping import check_patience
from ._extend import check_extension, drop_old_summary, extend, extends, is_finished, note_the_rate
from ._folder import RunFolder, default_folder
from ._manifest import manifest
from ._ranks import Silence, check_seen
from ._run import Run
from ._trainer import Trainer


def fit(
    config: Config,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    callbacks: Iterable[Any] = (),
    source: Source | None = None,
    for_report: bool = True,
    ranks: Ranks = ALONE,
) -> Run:
    """Train by a configuration, evaluate, and write everything into the run folder.

    Args:
        config: see :func:`recipe`.
        out: the run folder, which must not exist yet; by default ``runs/RECIPE-SEED-TIME``.
        resume: continue the run in ``out`` from its last checkpoint, over the data that it was started with, or start
            it if it does not exist. A finished run is returned as it is, unless ``config`` has other ``epochs``: then
            it goes on to so many, with the learning rate's schedule of so many.
        callbacks: follow the run, each a :class:`Callback` or any object that has some of its methods. A finished run
            that is returned as it is does not call them.
        source: the opened data, if they were made in Python or many runs share them; by default ``config.data`` is
            opened.
        for_report: write ``evaluation.safetensors``, which only a report reads.
        ranks: the processes that train it together, each of which calls this: ``with vmcr2.distributed.joined() as
            ranks`` under torchrun. Rank 0 alone writes and has callbacks; all return the run. See docs/scaling.md.

    Ctrl-C, SIGTERM and SIGHUP end the run after the current step and a checkpoint, from which ``resume`` continues.
    Then Ctrl-C raises KeyboardInterrupt, and the others SystemExit. A second signal does so at once.
    """
    if not isinstance(config, Config):
        raise TypeError(f"fit takes a Config, got {config!r}: vmcr2.recipe('digits') makes one from a recipe's name")
    told = Callbacks(callbacks if ranks.leads else [Silence()])
    check_patience(config)
    device = ranks.place(choose_device(config.run.device))
    given = RunFolder(Path(out)) if out is not None else None
    ranks.from_first(lambda: None if given is None else _check_folder(given, config, resume))
    source = source or ranks.in_turn(lambda _: open_settings(config.data))
    with forked_random(device), ExitStack() as held:
        trainer = _trainer(config, source, device, given, resume, ranks)
        folder = RunFolder(ranks.from_first(lambda: default_folder(config) if given is None else given.path))
        if trainer.left_as_drawn:
            names = ", ".join(trainer.left_as_drawn[:4]) + (", …" if len(trainer.left_as_drawn) > 4 else "")
            told.note(f"{names} do not fit {config.run.start_from} and start as they were drawn")
        # where it is finished nothing is written: it may be in a place that cannot be written to
        done = ranks.from_first(lambda: resume and is_finished(folder, config))
        done = done or ranks.from_first(lambda: _is_done_once_held(held, folder, trainer, told, resume))
        ranks.in_turn(lambda _: check_seen(folder))
        return trainer.restore(folder, told.note) if done else trainer.run(folder, told, for_report)


def _trainer(
    config: Config, source: Source, device: torch.device, folder: RunFolder | None, resume: bool, ranks: Ranks
) -> Trainer:
    """In every process of the run, rank 0 first: the others set the same samples aside."""

    def found() -> tuple[bool, bool | None]:
        goes_on = folder is not None and resume and (folder.finished or has_checkpoint(folder))
        return goes_on, folder.calibrates if folder is not None and folder.config.exists() else None

    goes_on, known = ranks.from_first(found)

    def build(aside: bool | None) -> Trainer:
        calibrates = known if aside is None else aside
        with enough_memory():
            return Trainer(config, source, device, fresh=not goes_on, calibrates=calibrates, ranks=ranks)

    return ranks.in_turn(build, tell=lambda made: made.aside is not None)


def _is_done_once_held(held: ExitStack, folder: RunFolder, trainer: Trainer, told: Callbacks, resume: bool) -> bool:
    """Take the folder, and write into it what will run; True if another process has finished the run meanwhile."""
    config = trainer.config
    held.enter_context(folder.held())
    _check_folder(folder, config, resume)  # again: another process may have had it meanwhile
    if not folder.config.exists():
        aside = 0 if trainer.aside is None else len(trainer.aside.labels)
        if not aside and trainer.held is None and config.data.calibration_share:
            told.note(f"no samples are set aside to calibrate on: {_why_none(trainer)}", None)
        about = manifest(config, trainer.numerics.device, trainer.source, aside)
        folder.create(config, about, preparation=trainer.source.preparation, resume=resume)
    elif is_finished(folder, config):
        return True
    elif other := trainer.other_data(folder):
        raise UserError(f"{other}: restore the old data, or start a new run with another --out")
    _begin_extension(folder, config, told, trainer.steps_per_epoch)
    folder.remove_halves()
    return False


def _why_none(trainer: Trainer) -> str:
    if can_be_parted(trainer.train_split):
        return f"{len(trainer.train_split.labels)} training samples of {trainer.num_classes} classes are too few"
    return "the training samples do not fit into memory twice. A folder val with --validation serves instead"


def _check_folder(folder: RunFolder, config: Config, resume: bool) -> None:
    """A folder is new, or to ``resume`` a run with these settings; otherwise a :class:`UserError`."""
    if not (resume and folder.config.exists()):
        folder.check_free(resume=resume)
    elif extends(folder, config):
        check_extension(folder, config.optim.epochs)
    elif folder.read_config().acting() != config.acting():
        raise UserError(f"{folder.path} was started with other settings: --resume uses the run's own settings")


def _begin_extension(folder: RunFolder, config: Config, callbacks: Callbacks, steps_per_epoch: int) -> None:
    """Nothing, unless ``config`` asks for other epochs than the run has; or a kill left the start of that half done."""
    before = folder.read_config()
    if before.optim.epochs == config.optim.epochs:
        drop_old_summary(folder, config)
        return
    extend(folder, config)
    if (checkpoint := find_checkpoint(folder)) is not None:
        note_the_rate(callbacks, before, config, read_position(checkpoint), steps_per_epoch)


def evaluate_run(
    path: Path | str,
    *,
    data_path: str | None = None,
    device: str = "auto",
    note: Callable[[str], None] = warnings.warn,
    source: Source | None = None,
) -> dict[str, Any]:
    """The figures of a finished run on the test set, recomputed from its weights; writes nothing.

    ``note`` is called with a sentence if the training data are not those of the run. ``source`` are the opened data,
    which a run of data made in Python needs.
    """
    folder = RunFolder(Path(path))
    config = folder.read_config()
    known = folder.read_summary()
    chosen = choose_device(device)
    moved = config.replace(data_path=data_path) if data_path else config
    source = source or open_settings(moved.data)
    with forked_random(chosen):
        with enough_memory():
            trainer = Trainer(config, source, chosen, fresh=False, calibrates=folder.calibrates)
        trainer.restore(folder, note)
        side = trainer.measure()
        _, result = trainer.measure_unseen(side, source.test(), "test")
    # decided when the run was made: on a hold-out, which is not measured here
    return result | side.figures | {name: known[name] for name in ("readout", "warning") if name in known}
