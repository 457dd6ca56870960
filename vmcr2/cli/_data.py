"""`vmcr2 data list | verify | pack`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..data import DATASETS, DataError, open_data, pack, verify

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
    packed = pack(name, source, target or Path("data") / f"{name}.safetensors")
    typer.echo(json.dumps({"name": name, "path": str(packed)}) if as_json else packed)
