"""`vmcr2 data list | example | check | verify | pack`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..data import DATASETS, DataError, check_folder, check_table, open_data, pack, verify, write_example
from ._own import progress_bar
from ._settings import Label

data_app = typer.Typer(no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@data_app.command("list")
def list_(as_json: Json = False) -> None:
    """List the data sets that vmcr2 can read, and where it finds them.

    \b
    vmcr2 data list
    VMCR2_DATA=~/data vmcr2 data list
    """
    found: dict[str, str | None] = {}
    for name in DATASETS:
        try:
            found[name] = str(open_data(name).path or "embedded")
        except DataError:
            found[name] = None
    if as_json:
        typer.echo(json.dumps(found))
        return
    for name, where in found.items():
        typer.echo(f"{name:15} {DATASETS[name].title:45} {where or 'not found'}")


@data_app.command("example")
def example_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")] = Path("photos"),
    as_json: Json = False,
) -> None:
    """Write a folder of pictures to try vmcr2 with: 1,437 digits in ten classes, and 380 others beside it.

    \b
    vmcr2 data example photos
    vmcr2 train photos --out runs/mine
    vmcr2 predict runs/mine photos-new
    """
    made = write_example(folder)
    if as_json:
        typer.echo(json.dumps({"folder": str(made.folder), "new": str(made.new)}))
        return
    typer.echo(f"{made.folder}: 1,437 pictures in 10 classes, to train on")
    typer.echo(f"{made.new}: 360 others and 20 of noise, to predict")


@data_app.command("check")
def check_(
    path: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="Your folder of pictures, or your table.")],
    label: Label = None,
    as_json: Json = False,
) -> None:
    """Look at your own data before you train: sizes, classes, files that cannot be read, what train and test share.

    Exit code 1 if something is wrong. Nothing is written.

    \b
    vmcr2 data check photos
    vmcr2 data check flowers.csv --label species
    """
    if not path.expanduser().exists():
        raise DataError(f"there is no folder or file {path}: check the path")
    place = path.expanduser()
    if place.is_dir():
        if label is not None:
            raise DataError(f"--label is for a table, and {path} is a folder: its classes are its folders")
        with progress_bar() as report:
            found = check_folder(place, progress=report)
    else:
        found = check_table(place, label)
    if as_json:
        typer.echo(json.dumps(found._asdict(), ensure_ascii=False))
    else:
        table = Table(title=found.title, show_header=False, box=None, pad_edge=False, title_justify="left")
        for what, value in found.rows:
            table.add_row(Text(what), Text(value))
        Console(highlight=False).print(table)
        for problem in found.problems:
            typer.echo(f"! {problem}")
        if not found.problems:
            typer.echo("nothing is wrong")
    if found.problems:
        raise typer.Exit(1)


@data_app.command("verify")
def verify_(
    name: Annotated[str, typer.Argument(help="mnist, cifar100, …")],
    data: Annotated[Path | None, typer.Option(help="A packed file or a folder.")] = None,
    as_json: Json = False,
) -> None:
    """Check sizes, labels and checksums.

    \b
    vmcr2 data verify cifar100 --data ~/data
    """
    said = verify(name, data)
    typer.echo(json.dumps({"name": name, "verified": said}) if as_json else said)


@data_app.command("pack")
def pack_(
    name: Annotated[str, typer.Argument(help="mnist, cifar100, …")],
    source: Annotated[Path, typer.Option("--from", help="The standard files: their folder, or the .tar.gz.")],
    target: Annotated[
        Path | None,
        typer.Option("--to", help="The packed file, or the folder to put it in; data/NAME.safetensors by default."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Pack the standard files into one file that loads in a second.

    \b
    vmcr2 data pack cifar100 --from ~/downloads/cifar-100-binary
    """
    with progress_bar() as report:
        packed = pack(name, source, target or Path("data") / f"{name}.safetensors", progress=report)
    typer.echo(json.dumps({"name": name, "path": str(packed)}) if as_json else packed)
