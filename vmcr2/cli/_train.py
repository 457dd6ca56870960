"""`vmcr2 train`: a new run, or one that goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data import OWN, Source, open_settings
from ..distributed import Ranks
from ..objectives import OBJECTIVES
from ..runs import (
    AUTO,
    Config,
    RunFolder,
    UserError,
    find_checkpoint,
    find_recipe,
    fit,
    is_finished,
    is_own_data,
    log_named,
    read_position,
    read_settings,
)
from ._display import display_for, print_summary
from ._own import describe, open_shown, own_data
from ._ranks import one_speaks, restarted
from ._report import PAGE, is_current, report_after
from ._settings import OBJECTIVE_HELP, Json, Label, complain, find_config, given_changes, names_of, refuse_twice


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="Your folder of pictures or your table; or the name of a recipe or a known data set: see "
            "`vmcr2 recipes`. digits by default.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the files of a known data set are: a packed file or a folder.")
    ] = None,
    label: Label = None,
    test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A table with the test rows; by default a fifth of the rows.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Height and width that a folder's pictures are resized to, once.")
    ] = None,
    channels: Annotated[int | None, typer.Option(help="Of a folder's pictures: 3 for colour, 1 for grey.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="A picture that cannot be read is an error.")] = False,
    validation: Annotated[
        bool, typer.Option("--validation", help="Measure on the data's own validation samples, not on the test set.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(help="mlp, resnet18, …; your own as package.module:factory; torchvision:NAME or timm:NAME."),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="First weights of the backbone: .safetensors, .pt or .pth.")
    ] = None,
    start_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A finished run, whose weights are the first ones.")
    ] = None,
    objective: Annotated[str | None, typer.Option(help=OBJECTIVE_HELP)] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; runs/NAME-SEED-TIME by default.")] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Passes over the data; the recipe's by default. With --resume, a finished run goes on to so many; its "
            "learning rate follows the schedule of so many, so it jumps up again unless it is constant."
        ),
    ] = None,
    holdout: Annotated[
        int | None, typer.Option(help="Training images to set aside. The test set is then not read.")
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Stop after so many epochs without a better accuracy on --holdout or --validation, and keep the best "
            "weights."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of first weights, order, augmentation and dropout.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; repeatable.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", "--logger", metavar="NAME", help="Also log to tensorboard or wandb; repeatable."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train, evaluate, and make a report: on your own data by a rule, or on a known data set by its recipe.

    \b
    vmcr2 train photos                            a folder with a folder of pictures for each class
    vmcr2 train flowers.csv --label species       a table
    vmcr2 train photos --model mynet:make         with your own network
    vmcr2 train                                   digits (part of scikit-learn), V-MCR²
    vmcr2 train digits --objective ce             the same with cross-entropy
    vmcr2 train cifar10 --objective auto          by a rule from the data
    vmcr2 train cifar100 --data ~/data --seed 1   from a packed file or the standard files
    vmcr2 train cifar100 --holdout 5000 --set lr=0.1 --set weight=10
    vmcr2 train --resume --out runs/mine          continue where it stopped (Ctrl-C stops a run)
    vmcr2 train --resume --out runs/mine --epochs 300     more epochs for a finished run
    vmcr2 train photos --validation --patience 20 --log tensorboard
    torchrun --nproc-per-node 4 -m vmcr2 train photos     with four processes, on four GPUs if there are
    """
    again = restarted(out) and not resume
    resume = resume or again
    own = own_data(recipe, data)
    changes = given_changes(
        None if own else data,
        **{"epochs": epochs, "holdout": holdout, "seed": seed, "device": device, "label": label, "test_path": test},
        **{"image_size": image_size, "channels": channels, "validation": validation or None},
        **{"model": model, "weights": weights, "start_from": start_from, "patience": patience},
    )
    if resume and out is None:
        raise UserError("--resume needs --out: the folder of the run to continue")
    if strict and (own is None or Path(own).expanduser().is_file()):
        raise UserError("--strict is for a folder of your own pictures: leave it out")

    def find(_: object) -> tuple[Config, Source | None]:
        if out is not None and resume and RunFolder(out).config.exists():
            return _resumed(out, own, recipe, data, objective, changes, set_ or [], strict, again)
        return _configured(own, recipe, objective, changes, set_ or [], strict)

    with one_speaks() as ranks:
        config, source = ranks.in_turn(find)
        if source is not None and not as_json and not resume:
            describe(source, config)
        _train(config, source, ranks, out, resume, log or [], as_json)


def _train(
    config: Config, source: Source | None, ranks: Ranks, out: Path | None, resume: bool, log: list[str], as_json: bool
) -> None:
    """The run, and what is said about it."""
    finished = out is not None and resume and is_finished(RunFolder(out), config)
    logs = [log_named(name) for name in log] if ranks.leads else []
    with display_for(quiet=as_json) as display:
        if out is not None and resume and not out.exists():
            display.note(f"there is no run in {out} yet: starting a new one")
        try:
            run = fit(config, out=out, resume=resume, callbacks=[display, *logs], source=source, ranks=ranks)
        except (KeyboardInterrupt, SystemExit) as stop:  # Ctrl-C; SIGTERM and SIGHUP
            complain(_stopped(display.folder or out, log))
            code = getattr(stop, "code", 130)
            raise typer.Exit(code if isinstance(code, int) else 1) from None
    if not ranks.leads:
        return
    # a kill may have come before the page was written; a run in a place that cannot be written to has its own
    page = run.folder / PAGE if finished and is_current(run.folder) else report_after(run.folder)
    if as_json:
        typer.echo(json.dumps({"folder": str(run.folder), "report": str(page) if page else None} | run.summary))
    else:
        if finished:
            typer.echo(f"{run.folder} was already finished; nothing has changed.")
        print_summary(run.summary, run.config, run.folder, warn=finished)  # a run says it itself, once
        if page is not None:
            typer.echo(f"report: {page}")


def _stopped(folder: Path | None, logs: list[str]) -> str:
    if folder is None or not RunFolder(folder).config.exists():
        return "stopped before the run started"
    again = f"`{' '.join(['vmcr2 train --resume --out', str(folder), *(f'--log {name}' for name in logs)])}`"
    checkpoint = find_checkpoint(RunFolder(folder))
    if checkpoint is None:
        return f"stopped before the first checkpoint (checkpoint_seconds): {again} starts again from the first epoch"
    position = read_position(checkpoint)
    if position.spent:
        return f"stopped; {again} continues in epoch {position.epoch + 1}, after step {position.step} of the run"
    return f"stopped; {again} continues after epoch {position.epoch}, from the last checkpoint"


def _configured(
    own: str | None,
    recipe: str | None,
    objective: str | None,
    changes: dict[str, Any],
    settings: list[str],
    strict: bool,
) -> tuple[Config, Source | None]:
    """The configuration of a new run; with the opened data, if they are a person's own."""
    refuse_twice(own=changes, set=names_of(settings))
    if objective not in (None, AUTO, *OBJECTIVES):
        raise UserError(f"--objective takes {', '.join(OBJECTIVES)} or {AUTO}, got {objective!r}")
    if own is None:
        return find_config(recipe or "digits", objective, changes, settings), None
    source = open_shown(own, read_settings(settings) | changes, strict=strict)
    return find_config(source, objective, changes, settings), source


def _resumed(
    out: Path,
    own: str | None,
    recipe: str | None,
    data: Path | None,
    objective: str | None,
    changes: dict[str, Any],
    settings: list[str],
    strict: bool,
    again: bool,
) -> tuple[Config, Source | None]:
    """The configuration of a run that is continued; with the opened data, if a person's own have moved.

    Settings may be given if they are the run's own: the command that started a run also continues it. ``again``:
    torchrun does so. Then all are compared: the folder may have a run of others, which the first attempt refused.
    """
    config = RunFolder(out).read_config()
    moved = data is not None and recipe is None and config.data.name in OWN
    others = {name: value for name, value in changes.items() if name != "epochs"}
    source: Source | None = None
    named = bool(again or others or settings or objective is not None or (data is not None and not moved))
    if named:
        given, source = _given(out, own, recipe, objective, changes, settings, strict)
        if (given if again else given.replace(epochs=config.optim.epochs)).acting() != config.acting():
            raise _other_settings(out)
    if "epochs" in changes and not again:
        config = _extended(RunFolder(out), config, changes["epochs"])
    if moved:
        return config, open_settings(config.replace(data_path=str(data)).data)
    if recipe is None or named:
        return config, source
    if is_own_data(recipe):
        same, of = str(Path(recipe).expanduser().resolve()) == config.data.path, config.data.path or config.data.name
    else:
        same, of = find_recipe(recipe).config.recipe == config.recipe, config.recipe or config.data.name
    if not same:
        raise UserError(f"{out} is a run of {of}, not of {recipe}: leave {recipe} out")
    return config, None


def _given(out: Path, *asked: Any) -> tuple[Config, Source | None]:
    try:
        return _configured(*asked)
    except UserError as error:  # a run cannot have such settings
        raise _other_settings(out) from error


def _other_settings(out: Path) -> UserError:
    return UserError(f"--resume uses the settings of {out}: leave all other settings out (only --epochs may change)")


def _extended(folder: RunFolder, config: Config, epochs: int) -> Config:
    """The configuration of a run that goes on to so many epochs, which must be more than it has."""
    if epochs == config.optim.epochs and is_finished(folder, config):
        done = folder.read_summary().get("epochs", epochs)
        if done < epochs:
            raise UserError(
                f"{folder.path} stopped by itself after epoch {done} of {epochs}: give --epochs above {epochs}"
            )
        raise UserError(f"{folder.path} has done {done} epochs already: give --epochs above that")
    return config.replace(epochs=epochs)
