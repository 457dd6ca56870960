"""`vmcr2 train | evaluate | predict | embed | neighbors | export | serve | recipes | report | sweep | data | bench`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from .._version import __version__
from ..runs import FAMILIES, RECIPES, RunFolder, TrainingError, UserError, default_origin, evaluate_run, find_recipe
from ._bench import bench_app
from ._data import data_app
from ._display import print_summary
from ._export import export
from ._ranks import leave, said_once
from ._report import report
from ._serve import serve
from ._settings import Json, Label, complain
from ._streams import make_sturdy, what_was_lost
from ._sweep import sweep
from ._train import train
from ._use import embed, neighbors, predict

app = typer.Typer(
    help="Train networks whose features lie on orthogonal class subspaces: MCR², V-MCR², cross-entropy.",
    epilog="Start with: vmcr2 train   (scikit-learn's digits, under a minute on a CPU)",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data", help="List, check and pack data sets.")
app.add_typer(bench_app, name="bench", help="Measure speed and memory on this machine.")
app.command()(train)
app.command()(export)
app.command()(report)
app.command()(serve)
app.command()(sweep)
app.command()(predict)
app.command()(embed)
app.command()(neighbors)


def main() -> None:
    """Run a command. Exit code 0 on success, 2 for a user's mistake (one sentence, no traceback), 1 if a run broke.

    What the machine refuses (a full disk, a folder that is gone, too little memory) is one sentence and 2 as well.
    """
    output = make_sturdy()
    try:
        with said_once():
            app()
    except UserError as error:
        _end(str(error), 2)
    except TrainingError as error:
        _end(str(error), 1)
    except OSError as error:
        _end(_refused(error), 2)
    except MemoryError:
        _end("there is not enough memory for this", 2)
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        _end(f"there is not enough memory for this: {str(error).splitlines()[0]}", 2)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            code = end.code or 0
            if not code and (lost := what_was_lost(output)):
                complain(lost)
                code = 0 if sys.argv[1:2] in (["train"], ["sweep"]) else 2  # of these two the folder is the result
            leave(code)
        raise


def _end(message: str, code: int) -> None:
    complain(message)
    leave(code)


def _refused(error: OSError) -> str:
    where = error.filename if error.filename is not None else "a file"
    named = os.fsdecode(where) if isinstance(where, str | bytes) else str(where)
    return f"cannot read or write {named}: {error.strerror or error}"


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
    figures = evaluate_run(run, data_path=str(data) if data else None, device=device, note=complain)
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
