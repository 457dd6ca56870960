"""What `vmcr2 sweep` shows while it runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..sweep import Point, SweepListener, score


def describe(record: dict[str, Any]) -> str:
    """The result of a run in a few words."""
    if "failed" in record:
        return f"failed: {record['failed']}"
    wall = record["wall_seconds"]
    early = f"stopped after epoch {record['epochs']}: " if record.get("pruned") else ""
    return (
        f"{early}hold-out {score(record):.4f}, ΔR {record['train_delta_r']:.1f} (train), "
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
        if "failed" not in record and not record.get("pruned"):
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
def sweep_display(*, quiet: bool) -> Iterator[SweepListener]:
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
