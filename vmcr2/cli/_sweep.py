"""`vmcr2 sweep`."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..runs import Config, UserError
from ..sweep import Point, SweepListener, grid, rank, read_axes, score, sweep as run_sweep, table
from ._settings import OBJECTIVE_HELP, Label, find_config, given_changes, names_of, refuse_twice


def sweep(
    recipe: Annotated[
        str, typer.Argument(metavar="DATA", help="Your folder or table, or a recipe's or data set's name.")
    ],
    out: Annotated[Path, typer.Option(help="The sweep's folder. Points that have a result there are not run again.")],
    axes: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=V1,V2",
            help="Values of a setting; repeatable. Separate values that contain commas by ;",
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", "--seed", metavar="0,1", help="Seeds; one run for each.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Where the data are: a packed file or a folder.")] = None,
    label: Label = None,
    objective: Annotated[str | None, typer.Option(help=OBJECTIVE_HELP)] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data; the recipe's by default.")] = None,
    holdout: Annotated[
        int | None,
        typer.Option(help="Training images to compare on; by default 5000 of a large set, a fifth of a small one."),
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting for every point; repeatable.")
    ] = None,
    parallel: Annotated[int, typer.Option(help="Runs at a time; about 3 on a GPU.")] = 1,
    keep_weights: Annotated[
        bool, typer.Option("--keep-weights", help="Keep weights, checkpoints and evaluation files too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Train at every point of a grid and compare on held-out training images; the test set is never read.

    \b
    vmcr2 sweep digits --grid lr=0.1,0.3 --seeds 0,1 --out sweeps/lr
    vmcr2 sweep cifar100 --epochs 100 --grid lr=0.1,0.3 --grid weight=10,20,40 --parallel 3 --out sweeps/a
    vmcr2 sweep digits --grid 'hidden=256,256;512' --out sweeps/hidden
    Give the same command again to continue a stopped sweep, or to add points to the grid.
    """
    changes = given_changes(data, epochs=epochs, holdout=holdout, device=device, label=label)
    varied = read_axes(axes or [])
    refuse_twice(own=changes, grid=varied, set=names_of(set_ or []))

    def config_of(texts: list[str]) -> Config:
        return find_config(recipe, objective, changes, [*(set_ or []), *texts])

    points = _points(config_of, varied, seeds, holdout, set_ or [])
    with _display(quiet=as_json) as display, _terminated_like_interrupted():
        try:
            done = run_sweep(points, out, parallel=parallel, keep_weights=keep_weights, listener=display)
        except KeyboardInterrupt:
            print(f"vmcr2: stopped; give the same command again to continue {out}", file=sys.stderr)
            raise typer.Exit(130) from None
    rows = rank(done.points, done.records)
    if as_json:
        lost = [
            {"point": dict(p.settings), "seed": p.config.run.seed, "why": done.lost[p.id]}
            for p in points
            if p.id in done.lost
        ]
        shown = {"folder": str(out), "runs": done.lines, "table": [row._asdict() for row in rows], "lost": lost}
        typer.echo(json.dumps(shown, ensure_ascii=False))
    elif rows:
        typer.echo("\n" + table(rows))
        typer.echo(f"\n{len(done.lines)} of {len(points)} runs have a line in {out}/results.jsonl")
    if done.lost:
        print(
            f"vmcr2: {len(done.lost)} of {len(points)} runs ended without a result; the same command tries them again",
            file=sys.stderr,
        )
        raise typer.Exit(1)


def _points(
    config_of: Callable[[list[str]], Config],
    axes: dict[str, list[str]],
    seeds: str | None,
    holdout: int | None,
    settings: list[str],
) -> list[Point]:
    base = config_of([])
    said = holdout is not None or "holdout" in names_of(settings)
    if said and base.data.holdout == 0:
        raise UserError(
            "holdout must be above 0 in a sweep, which never reads the test set: leave it out to use the default"
        )
    if seeds is not None:
        if "seed" in axes:
            raise UserError("--seeds and --grid seed=… set the same: leave one out")
        axes = axes | read_axes([f"seed={seeds}"])
    return grid(base, axes, config_of)


def describe(record: dict[str, Any]) -> str:
    """The result of a run in a few words."""
    if "failed" in record:
        return f"failed: {record['failed']}"
    wall = record["wall_seconds"]
    return (
        f"hold-out {score(record):.4f}, ΔR {record['train_delta_r']:.1f} (train), "
        f"{record['seconds'] if wall is None else wall:.0f} s"
    )


class PlainDisplay:
    """A line for every run."""

    def started(self, total: int, done: int, note: str | None) -> None:
        """Print how much there is to do."""
        typer.echo(
            f"{total} points" + (f", {done} of them done before" if done else "") + (f"; {note}" if note else "")
        )

    def finished(self, done: int, total: int, record: dict[str, Any], point: Point) -> None:
        """Print the figures of a run."""
        typer.echo(f"[{done}/{total}] {point.label}: {describe(record)}")

    def lost(self, point: Point, reason: str) -> None:
        """Print why a run has no result."""
        print(f"vmcr2: {point.label}: no result: {reason}", file=sys.stderr)


class LiveDisplay:
    """A line for every run, and below them a bar with the best so far."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.best: tuple[float, str] | None = None

    def started(self, total: int, done: int, note: str | None) -> None:
        """Start the bar."""
        if note:
            self._print(note)
        self.task = self.progress.add_task("runs", total=total, completed=done, best="")

    def finished(self, done: int, total: int, record: dict[str, Any], point: Point) -> None:
        """Print the run's figures and advance the bar."""
        self._print(f"[{done}/{total}] {point.label}: {describe(record)}")
        if "failed" not in record:
            self.best = max(self.best or (-1.0, ""), (score(record), point.label))
        best = f"best {self.best[0]:.4f} ({self.best[1]})" if self.best else ""
        self.progress.update(self.task, completed=done, best=best)

    def lost(self, point: Point, reason: str) -> None:
        """Print why it has no result."""
        self._print(f"{point.label}: no result: {reason}")

    def _print(self, text: str) -> None:
        self.progress.console.print(text, highlight=False, markup=False)


class Silent:
    """For --json: reports runs without a result, nothing else."""

    def started(self, total: int, done: int, note: str | None) -> None:
        """Nothing."""

    def finished(self, done: int, total: int, record: dict[str, Any], point: Point) -> None:
        """Nothing."""

    lost = PlainDisplay.lost


@contextmanager
def _display(*, quiet: bool) -> Iterator[SweepListener]:
    """The display that fits the output."""
    if quiet:
        yield Silent()
    elif not sys.stdout.isatty():
        yield PlainDisplay()
    else:
        columns = (
            TextColumn("{task.description}"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[best]}"),
        )
        with Progress(*columns, console=Console()) as progress:
            yield LiveDisplay(progress)


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C: both stop the workers and MPS."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
