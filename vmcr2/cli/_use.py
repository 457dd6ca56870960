"""`vmcr2 predict | embed | neighbors`: use a finished run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._shared import UserError, listed
from ..data import Block
from ..inference import TopAnswers, check_output, rows_file, save_features, write_sheet
from ..runs import Run, load_run
from ._own import progress_bar

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")]
Inputs = Annotated[
    list[Path], typer.Argument(metavar="INPUT…", help="Pictures and folders of pictures; of a run on a table, tables.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
Refuse = Annotated[
    float | None,
    typer.Option(metavar="RATE", help="Refuse what is foreign, at this false-alarm rate: 0.05 is one known in 20."),
]
_SHOWN = 50
_MOST_TOP = 100
_UNREADABLE = 1


def predict(
    run: RunArgument,
    inputs: Inputs,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A .csv, .jsonl or .parquet file; by default the screen.")
    ] = None,
    refuse: Refuse = None,
    top: Annotated[
        int, typer.Option(metavar="N", help="Name the N likeliest classes; from the third on as choice_3, …")
    ] = 2,
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Say what new pictures or rows are: class, probability, second choice, residual and novelty.

    With --refuse, class is empty where a sample is refused, and likeliest has the class all the same.

    Inputs that cannot be read are listed on stderr, the others are answered, and the exit code is 1.

    \b
    vmcr2 predict runs/mine new.jpg                      on the screen
    vmcr2 predict runs/mine photos more/*.png -o out.csv
    vmcr2 predict runs/mine photos --refuse 0.05 -o out.parquet
    vmcr2 predict runs/mine photos --top 5 -o out.csv    the five likeliest classes
    vmcr2 predict runs/flowers new.csv -o out.jsonl      rows, for a run on a table
    """
    if out is not None:
        check_output(out, (".csv", ".jsonl", ".parquet"), force=force)
    if not 1 <= top <= _MOST_TOP:
        raise UserError(f"--top must lie between 1 and {_MOST_TOP}, got {top}")
    loaded = load_run(run, device=device)
    threshold = None if refuse is None else loaded.threshold(refuse)
    reading = _Reading(loaded, inputs)
    _say_if_uncalibrated(loaded)
    columns = (
        _columns(loaded, block.names, loaded.top_answers_of(loaded.features_of(block.inputs), top), threshold)
        for block in reading.blocks("predicting")
    )
    if out is None:
        _show(columns)
    else:
        with rows_file(out, texts=("class",)) as write:  # a block of refused samples has none
            for rows in columns:
                write(rows)
    reading.finish(out)


def embed(
    run: RunArgument,
    inputs: Inputs,
    out: Annotated[Path, typer.Option("-o", "--out", help="A .npz or .parquet file.")],
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Write the features of new pictures or rows: unit vectors, for search, plots and other tools.

    A .npz has the arrays names (n,) and features (n, d), float32; a .parquet the columns name and features.

    \b
    vmcr2 embed runs/mine photos -o features.npz
    """
    check_output(out, (".npz", ".parquet"), force=force)
    loaded = load_run(run, device=device)
    reading = _Reading(loaded, inputs)
    blocks = reading.blocks("embedding")
    parts = ((block.names, loaded.features_of(block.inputs).float().cpu().numpy()) for block in blocks)
    if out.suffix.lower() == ".parquet":
        with rows_file(out) as write:
            for names, features in parts:
                write({"name": names, "features": list(features)})
    else:
        save_features(out, parts)
    reading.finish(out)


def neighbors(
    run: RunArgument,
    inputs: Inputs,
    count: Annotated[int, typer.Option("-n", "--count", help="How many for each input.")] = 5,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE.png", help="Draw the pictures side by side, too.")
    ] = None,
    device: Device = "auto",
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each input.")] = False,
) -> None:
    """Show the training samples that are nearest to new ones, by the cosine of their features.

    \b
    vmcr2 neighbors runs/mine new.jpg
    vmcr2 neighbors runs/mine new.jpg -n 8 -o nearest.png
    """
    if out is not None:
        check_output(out, (".png",), force=force)
    loaded = load_run(run, device=device)
    if out is not None and loaded.kept.pictures is None:
        raise UserError(f"{run} was trained on rows, which have no pictures: leave -o out")
    reading = _Reading(loaded, inputs)
    drawn = 0
    for block in reading.blocks("searching"):
        found = loaded.kept.nearest(loaded.features_of(block.inputs), count, loaded.class_names)
        for row, name in enumerate(block.names):
            pairs = list(zip(found.names[row], found.cosines[row].tolist(), found.places[row].tolist(), strict=True))
            if as_json:
                own = [{"class": kind, "cosine": cosine, "training_sample": place} for kind, cosine, place in pairs]
                typer.echo(json.dumps({"input": name, "neighbors": own}, ensure_ascii=False))
            else:
                typer.echo(f"{name}: " + ", ".join(f"{kind} {cosine:.3f} (#{place})" for kind, cosine, place in pairs))
        if out is not None and not drawn:
            drawn = min(_SHOWN, len(block.names))
            write_sheet(out, block.inputs[:drawn], found.part(slice(drawn)))
    if out is not None:
        typer.echo(f"{out}: the first {drawn} of {reading.total:,}", err=True)
    reading.finish(None)


class _Reading:
    """The inputs of a command in blocks, with a progress bar; remembers what could not be read."""

    def __init__(self, run: Run, inputs: list[Path]) -> None:
        notes: list[str] = []
        with Console(stderr=True).status("reading"):  # tables are read here; shown on a terminal alone
            self.total, self._blocks = run.form.blocks(inputs, notes)
        self.unreadable: list[tuple[str, str]] = []
        self.done = 0
        for note in notes:
            typer.echo(note, err=True)

    def blocks(self, what: str) -> Iterator[Block]:
        """Those with something in them."""
        with progress_bar() as report:
            report(what, 0, self.total)
            for block in self._blocks:
                self.unreadable += block.unreadable
                if block.names:
                    yield block
                self.done += len(block.names)
                report(what, self.done + len(self.unreadable), self.total)
        if not self.done:  # before an empty file is written
            said = listed((f"{name} ({why})" for name, why in self.unreadable), 3)
            raise UserError(f"none of the inputs can be read: {said}")

    def finish(self, out: Path | None) -> None:
        """Say what was written and what was not read; exit code 1 if anything was not."""
        if out is not None and self.done:
            typer.echo(f"{out}: {self.done:,} of {self.total:,}", err=True)
        for name, why in self.unreadable:
            print(f"vmcr2: cannot read {name}: {why}", file=sys.stderr)
        if self.unreadable:
            raise typer.Exit(_UNREADABLE)


def _columns(run: Run, names: list[str], answers: TopAnswers, threshold: float | None) -> dict[str, list[Any]]:
    """The columns of an answer, by name. Without calibration there are no probabilities."""
    likeliest, *others = ([run.class_names[at] for at in column] for column in answers.labels.T.tolist())
    nothing = [None] * len(names)
    calibrated = run.confidence is not None
    sure = [_rounded(column) if calibrated else nothing for column in answers.probabilities.T]
    columns: dict[str, list[Any]] = {"input": names, "class": likeliest}
    if threshold is not None:
        refused = (answers.novelty.double() > threshold).tolist()
        columns["class"] = [None if out else name for name, out in zip(likeliest, refused, strict=True)]
        columns |= {"refused": refused, "likeliest": likeliest}
    columns["probability"] = sure[0]
    for place, (other, probability) in enumerate(zip(others, sure[1:], strict=True), 2):
        title = "second" if place == 2 else f"choice_{place}"
        columns |= {title: other, f"{title}_probability": probability}
    return columns | {
        "residual": _rounded(answers.residuals[:, 0]),
        "novelty": _rounded(answers.novelty) if run.has_novelty else nothing,
    }


def _rounded(values: Any) -> list[float]:
    return [round(value, 6) for value in values.double().tolist()]


def _show(columns: Iterator[dict[str, list[Any]]]) -> None:
    """The first answers as a table on the screen."""
    table, left_out = Table(box=None, pad_edge=False), 0
    for rows in columns:
        if not table.columns:
            for name in rows:
                table.add_column(name.replace("_", " "), overflow="fold")
        lines = list(zip(*rows.values(), strict=True))
        room = max(0, _SHOWN - table.row_count)
        for line in lines[:room]:
            table.add_row(*(Text(_text(value)) for value in line))
        left_out += len(lines[room:])
    if table.row_count:
        Console(highlight=False).print(table)
    if left_out:
        typer.echo(f"and {left_out:,} more: -o FILE writes all")


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _say_if_uncalibrated(run: Run) -> None:
    if run.confidence is None:
        typer.echo("This run is not calibrated: there are no probabilities (docs/using.md, how sure it is).", err=True)
