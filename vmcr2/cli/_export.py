"""`vmcr2 export`: a run as one file for other programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..runs import load_run


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run, or one of run.save_pretrained.")],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", help="model.onnx for onnxruntime, model.pt2 for torch.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Write a run as one file for other programs, and check that the file answers as the run does.

    \b
    vmcr2 export runs/mine -o model.onnx     for onnxruntime
    vmcr2 export runs/mine -o model.pt2      for torch.export.load

    The file takes uint8 pictures of the run's size (or prepared rows), any number at a time, and answers with label,
    probabilities, novelty and features. docs/exporting.md shows how to use it.
    """
    console = Console(stderr=True)
    with console.status("exporting"):  # some seconds; shown on a terminal alone
        loaded = load_run(run, device="cpu")
        written = loaded.export(out, force=force)
    size = written.path.stat().st_size
    if as_json:
        found = {"file": str(written.path), "bytes": size, "difference": written.difference}
        typer.echo(json.dumps(found | {"batches": list(written.batches), "calibrated": loaded.confidence is not None}))
        return
    if loaded.confidence is None:
        print("vmcr2: the run is not calibrated: the file's probabilities are not either", file=sys.stderr)
    kind = "uint8" if loaded.form.is_pictures else "float32"
    shape = "×".join(map(str, loaded.form.shape))
    typer.echo(
        f"{written.path}: {len(loaded.class_names)} classes, {kind} n×{shape} for any n, {size / 1e6:.1f} MB\n"
        f"checked: batches of {', '.join(map(str, written.batches))} differ from the run by at most "
        f"{written.difference:.1e}"
    )
