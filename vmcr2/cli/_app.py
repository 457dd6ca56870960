"""`vmcr2 train | evaluate | recipes | report | sweep | data | bench`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .._version import __version__
from ..data import OWN, Source, open_settings
from ..objectives import OBJECTIVES
from ..runs import (
    AUTO,
    FAMILIES,
    RECIPES,
    Config,
    RunFolder,
    TrainingError,
    UserError,
    default_origin,
    evaluate_run,
    find_recipe,
    fit,
    is_own_data,
    read_position,
    read_settings,
)
from ._bench import bench_app
from ._data import data_app
from ._display import display_for, print_summary
from ._own import describe, open_shown, own_data
from ._report import PAGE, report, report_after
from ._serve import serve
from ._settings import OBJECTIVE_HELP, Label, find_config, given_changes, names_of, refuse_twice
from ._sweep import sweep

app = typer.Typer(
    help="Train networks whose features lie on orthogonal class subspaces: MCR², V-MCR², cross-entropy.",
    epilog="Start with: vmcr2 train   (scikit-learn's digits, under a minute on a CPU)",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data", help="List, check and pack data sets.")
app.add_typer(bench_app, name="bench", help="Measure speed and memory on this machine.")
app.command()(report)
app.command()(serve)
app.command()(sweep)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def main() -> None:
    """Run a command. Exit code 0 on success, 2 for a user's mistake (one sentence, no traceback), 1 if a run broke."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show Δ must not end a run
    try:
        app()
    except UserError as error:
        _complain(str(error))
        sys.exit(2)
    except TrainingError as error:
        _complain(str(error))
        sys.exit(1)


def _complain(message: str) -> None:
    print(f"vmcr2: {message}", file=sys.stderr)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
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
    epochs: Annotated[int | None, typer.Option(help="Passes over the data; the recipe's by default.")] = None,
    holdout: Annotated[
        int | None, typer.Option(help="Training images to set aside. The test set is then not read.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of first weights, order, augmentation and dropout.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; repeatable.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
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
    vmcr2 train --resume --out runs/mine          continue where it stopped
    """
    own = own_data(recipe, data)
    changes = given_changes(
        None if own else data,
        **{"epochs": epochs, "holdout": holdout, "seed": seed, "device": device, "label": label, "test_path": test},
        **{"image_size": image_size, "channels": channels, "validation": validation or None},
        **{"model": model, "weights": weights, "start_from": start_from},
    )
    if resume and out is None:
        raise UserError("--resume needs --out: the folder of the run to continue")
    if strict and (own is None or Path(own).expanduser().is_file()):
        raise UserError("--strict is for a folder of your own pictures: leave it out")
    source: Source | None = None
    if out is not None and resume and RunFolder(out).config.exists():
        config, source = _resumed(out, recipe, data, objective, changes, set_ or [])
    else:
        config, source = _configured(own, recipe, objective, changes, set_ or [], strict)
    if source is not None and not as_json and not resume:
        describe(source, config)
    finished = out is not None and resume and RunFolder(out).finished
    with display_for(quiet=as_json) as listener:
        if out is not None and resume and not out.exists():
            listener.note(f"there is no run in {out} yet: starting a new one")
        try:
            run = fit(config, out=out, resume=resume, listener=listener, source=source)
        except KeyboardInterrupt:
            _complain(_stopped(listener.folder or out))
            raise typer.Exit(130) from None
    there = run.folder / PAGE if (run.folder / PAGE).exists() else None
    page = there if finished else report_after(run.folder)
    if as_json:
        typer.echo(json.dumps({"folder": str(run.folder), "report": str(page) if page else None} | run.summary))
    else:
        if finished:
            typer.echo(f"{run.folder} was already finished; nothing has changed.")
        print_summary(run.summary, run.config, run.folder, warn=finished)  # a run says it itself, once
        if page is not None:
            typer.echo(f"report: {page}")


def _stopped(folder: Path | None) -> str:
    if folder is None or not RunFolder(folder).config.exists():
        return "stopped before the run started"
    again = f"`vmcr2 train --resume --out {folder}`"
    checkpoint = RunFolder(folder).checkpoint
    if not checkpoint.exists():
        return f"stopped before the first checkpoint (checkpoint_seconds): {again} starts again from the first epoch"
    return f"stopped; {again} continues after epoch {read_position(checkpoint).epoch}, from the last checkpoint"


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
    recipe: str | None,
    data: Path | None,
    objective: str | None,
    changes: dict[str, Any],
    settings: list[str],
) -> tuple[Config, Source | None]:
    """The configuration of a run that is continued; with the opened data, if a person's own have moved."""
    config = RunFolder(out).read_config()
    moved = data is not None and recipe is None and config.data.name in OWN
    if changes or settings or objective is not None or (data is not None and not moved):
        raise UserError(f"--resume uses the settings of {out}: leave all other settings out")
    if moved:
        return config, open_settings(config.replace(data_path=str(data)).data)
    if recipe is None:
        return config, None
    if is_own_data(recipe):
        same, of = str(Path(recipe).expanduser().resolve()) == config.data.path, config.data.path or config.data.name
    else:
        same, of = find_recipe(recipe).config.recipe == config.recipe, config.recipe or config.data.name
    if not same:
        raise UserError(f"{out} is a run of {of}, not of {recipe}: leave {recipe} out")
    return config, None


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[
        Path | None, typer.Option(help="Where the data are, if they have moved: a folder or a file.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    as_json: Json = False,
) -> None:
    """Evaluate a finished run on the test set again, from its weights.

    \b
    vmcr2 evaluate runs/digits-vmcr2-seed0-…
    """
    figures = evaluate_run(run, data_path=str(data) if data else None, device=device, note=_complain)
    if as_json:
        typer.echo(json.dumps(figures))
    else:
        print_summary(figures, RunFolder(run).read_config(), run)


@app.command()
def recipes(
    name: Annotated[
        str | None,
        typer.Argument(help="Show every value of this recipe, or for your folder or table, and where it comes from."),
    ] = None,
    label: Label = None,
    as_json: Json = False,
) -> None:
    """List the recipes, or show one.

    \b
    vmcr2 recipes
    vmcr2 recipes cifar100-vmcr2
    vmcr2 recipes cifar10-auto                    the rule's values, and why
    vmcr2 recipes flowers.csv --label species     the rule's values for your own data
    """
    if name is None:
        listed = {key: make().title for key, make in RECIPES.items()}
        if as_json:
            typer.echo(json.dumps(listed, ensure_ascii=False))
            return
        width = max(map(len, listed))
        for key, title in listed.items():
            typer.echo(f"{key:{width}}  {title}")
        typer.echo(f"\nNames to use with --objective: {', '.join(FAMILIES)}")
        return
    found = find_recipe(name, given={"label": label} if label is not None else None)
    if label is not None:
        found.config.check_acting(["label"])
    values = found.config.acting()
    origins = {key: found.origins.get(key, default_origin(key)) for key in values if key != "recipe"}
    if as_json:
        shown = {key: {"value": values[key], "origin": origin} for key, origin in origins.items()}
        typer.echo(json.dumps(shown, ensure_ascii=False))
        return
    typer.echo(f"{found.config.recipe}: {found.title}")
    for key, origin in origins.items():
        value = values[key]
        shown_value = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        typer.echo(f"  {key:22} {shown_value:18} {origin}")
