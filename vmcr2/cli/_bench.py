"""`vmcr2 bench objectives | epoch | latch | scale | stream | check`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from .._shared import atomic
from ..runs import UserError
from ..training import choose_device

bench_app = typer.Typer(no_args_is_help=True)

Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the raw figures here.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads; torch's own number by default.")]


@bench_app.command()
def objectives(json_: Json = None, device: Device = "auto", threads: Threads = None) -> None:
    """Time the objectives, forward + backward, against textbook code, at the batch shapes of the paper's data sets.

    \b
    vmcr2 bench objectives
    vmcr2 bench objectives --json benchmarks/results/objectives-h200.json
    vmcr2 bench objectives --device cpu --threads 2
    """
    from ..bench import objectives as bench

    chosen = _prepared(json_, device, threads)
    _show(bench.table, bench.run(chosen, say=_say), json_)


@bench_app.command()
def epoch(
    json_: Json = None,
    device: Device = "auto",
    threads: Threads = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="mnist, cifar10, cifar100, cifar100-preact or tiny-imagenet; on a GPU all. Repeatable."),
    ] = None,
    images: Annotated[
        int | None, typer.Option(help="Use fewer images than the data set has; by default two batches on a CPU.")
    ] = None,
) -> None:
    """Time epochs of every objective with the paper's networks, on random images of a data set's size.

    On a GPU also the first replayed step of a new process (with cifar100), and a real run (with tiny-imagenet).

    \b
    vmcr2 bench epoch --json benchmarks/results/epoch-h200.json
    vmcr2 bench epoch --data cifar100 --data cifar100-preact
    """
    from ..bench import epoch as bench

    chosen = _prepared(json_, device, threads)
    for name in data or ():
        if name not in bench.DATA:
            raise UserError(f"--data takes {', '.join(bench.DATA)}, got {name!r}")
    if images is not None and images < 1:
        raise UserError(f"--images must be at least 1, got {images}")
    names = tuple(data) if data else None
    _show(bench.table, bench.run(chosen, data=names, images=images, say=_say), json_)


@bench_app.command()
def latch(json_: Json = None, device: Device = "auto", threads: Threads = None) -> None:
    """Time latching on whole training sets of 100, 200 and 1000 classes.

    \b
    vmcr2 bench latch --json benchmarks/results/latch-h200.json
    """
    from ..bench import latch as bench

    chosen = _prepared(json_, device, threads)
    _show(bench.table, bench.run(chosen, say=_say), json_)


@bench_app.command()
def scale(json_: Json = None, device: Device = "auto", threads: Threads = None) -> None:
    """Time a training step of every objective with 10 to 100,000 classes, at a fixed batch: what grows with k?

    A contender is left out where its step would take too long or too much memory; the table says so.

    \b
    vmcr2 bench scale --json benchmarks/results/scale-h200.json
    """
    from ..bench import scale as bench

    chosen = _prepared(json_, device, threads)
    _show(bench.table, bench.run(chosen, say=_say), json_)


@bench_app.command()
def stream(json_: Json = None, device: Device = "auto", threads: Threads = None) -> None:
    """Time epochs over pictures that are on the device, and over the same pictures streamed from a file.

    \b
    vmcr2 bench stream --json benchmarks/results/stream-h200.json
    """
    from ..bench import stream as bench

    chosen = _prepared(json_, device, threads)
    _show(bench.table, bench.run(chosen, say=_say), json_)


@bench_app.command()
def check(
    json_: Json = None,
    device: Device = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads; the committed figures have one.")] = 1,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with this record; by default the committed one.")
    ] = None,
    against_epochs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="On a GPU: compare epochs with this record of bench epoch.")
    ] = None,
    wide: Annotated[
        bool, typer.Option("--wide", help="Only wide bounds that hold on any CPU; needs no record.")
    ] = False,
) -> None:
    """Fail (exit code 1) if a ratio of times, or a peak of memory, is more than 5 % worse than the committed record.

    The noise that the quartiles show is allowed too. What is worse is measured again, up to three times. On a GPU the
    ratios are those of the objectives, and of a short set of epochs.

    \b
    vmcr2 bench check                                # in a checkout, on a machine like that of the record
    vmcr2 bench check --against mine.json            # a record of `vmcr2 bench objectives --json mine.json`
    vmcr2 bench check --wide                         # what .ci/run does
    """
    from ..bench import check as bench

    chosen = _prepared(json_, "cpu" if wide else device, threads)
    if wide:
        verdicts = bench.floors()
    else:
        record, verdicts = _against_records(chosen, against, against_epochs)
        if json_ is not None:
            _write(record, json_)
    for verdict in verdicts:
        typer.echo(verdict.line())
    compared = [verdict for verdict in verdicts if verdict.compared]
    worse = sum(not verdict.holds for verdict in compared)
    new = len(verdicts) - len(compared)
    typer.echo(f"{len(compared)} compared, {worse} worse{f', {new} without a record' if new else ''}.")
    if worse or not compared:
        raise typer.Exit(1)


def _against_records(
    device: torch.device, against: Path | None, against_epochs: Path | None
) -> tuple[dict[str, Any], list[Any]]:
    """The objectives, and on a GPU epochs too. Both records are read before anything is measured."""
    from ..bench import check, epoch_check

    path, epochs_path = against or check.committed_for(device), against_epochs or epoch_check.COMMITTED
    if device.type != "cuda" and against_epochs is not None:
        raise UserError("--against-epochs acts on a GPU only: leave it out")
    committed = _read(path, check.read_record, "objectives", "--against")
    typer.echo(f"Against {path.name}: {check.about(committed)}.")
    epochs: dict[str, Any] | None = None
    if device.type == "cuda":
        epochs = _read(epochs_path, epoch_check.read_record, "epoch", "--against-epochs")
        typer.echo(f"Epochs against {epochs_path.name}: {check.about(epochs)}.")
    record, verdicts = check.run(device, committed, say=_say)
    if epochs is not None:
        record["epochs"], more = epoch_check.run(device, epochs, say=_say)
        verdicts += more
    typer.echo(f"Now: {check.about(record)}.")
    return record, verdicts


def _read(path: Path, read: Callable[[Path], dict[str, Any]], benchmark: str, option: str) -> dict[str, Any]:
    try:
        return read(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: run it in a checkout, or give a record with {option}") from error
    except ValueError as error:
        raise UserError(f"{path} is not a record of `vmcr2 bench {benchmark} --json`") from error


def _say(text: str) -> None:
    """Say what is measured next, on stderr: on a CPU it takes minutes."""
    typer.echo(f"{text} …", err=True)


def _prepared(target: Path | None, device: str, threads: int | None) -> torch.device:
    """The device. Mistakes in the options are found before anything is measured."""
    if target is not None and (target.is_dir() or not target.parent.is_dir()):
        raise UserError(f"--json takes a file to write: {target} is a folder, or its folder does not exist")
    if threads is not None:
        if threads < 1:
            raise UserError(f"--threads must be at least 1, got {threads}")
        torch.set_num_threads(threads)
    return choose_device(device)


def _show(table: Any, record: dict[str, Any], target: Path | None) -> None:
    typer.echo(table(record))
    if target is not None:
        _write(record, target)


def _write(record: dict[str, Any], target: Path) -> None:
    try:
        with atomic(target) as temporary:
            temporary.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}") from error
