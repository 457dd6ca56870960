"""Shows the progress of a run: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..data import DATASETS
from ..functional import maximal_rate_reduction
from ..runs import Callback, Config, RunFolder

_PLAIN_LINES = 20
_MEASURED = ("train_delta_r", "holdout_accuracy", "holdout_head_accuracy")  # not in every epoch


def describe(record: dict[str, Any]) -> str:
    """The figures of an epoch in one line."""
    parts = [
        f"R {record['expansion']:.1f}",
        f"R_c {record['compression']:.1f}",
        f"ΔR {record['batch_delta_r']:.1f} (batch)",
    ]
    if "mismatch" in record:
        parts.append(f"M {record['mismatch']:.3g}")
    if "train_delta_r" in record:
        parts.append(f"ΔR {record['train_delta_r']:.1f} (train)")
    if "holdout_accuracy" in record:
        head = f" (head {record['holdout_head_accuracy']:.4f})" if "holdout_head_accuracy" in record else ""
        parts.append(f"hold-out {record['holdout_accuracy']:.4f}{head}")
    parts.append(f"{record['images_per_second']:,.0f} samples/s")
    return "  ".join(parts)


class Display(Callback):
    """Shows nothing, for --json, and remembers the run's folder. The other displays also show it."""

    folder: Path | None = None
    """The run's folder, once the run has started: for the message if somebody stops it."""

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        """Remember the folder."""
        self.folder = folder

    def note(self, text: str) -> None:
        """On stderr: stdout is for the JSON."""
        typer.echo(text, err=True)


class PlainDisplay(Display):
    """About twenty lines over the run, for a file or a pipe."""

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        """Print what runs, and its folder."""
        super().started(config, folder, first_epoch)
        self.epochs = config.optim.epochs
        self.every = max(1, config.optim.epochs // _PLAIN_LINES)
        self.shown = first_epoch
        self.latest = (0, 0.0)
        typer.echo(f"{_title(config)} -> {folder}" + (f", resumed after epoch {first_epoch}" if first_epoch else ""))

    def epoch(self, record: dict[str, Any]) -> None:
        """Print a line for some epochs."""
        epoch = record["epoch"]
        if epoch == 1 or epoch // self.every > self.shown // self.every or epoch == self.epochs:
            # from the pace since the last line: the first epoch includes the start-up, and says nothing
            since, spent = self.latest
            left = ""
            if epoch > max(since, 1) and (since > 0 or epoch == self.epochs):
                left = f"  {(record['seconds'] - spent) / (epoch - since) * (self.epochs - epoch):.0f} s left"
            self.shown = epoch
            self.latest = epoch, record["seconds"]
            typer.echo(f"epoch {epoch}/{self.epochs}  {describe(record)}{left}")

    def note(self, text: str) -> None:
        """On its own line."""
        typer.echo(text)


class LiveDisplay(Display):
    """A progress bar, and the latest figures under it."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.progress = Progress(
            TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(bar_width=24), TimeRemainingColumn()
        )
        self.latest: dict[str, Any] = {}

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        """Start the bar."""
        super().started(config, folder, first_epoch)
        self.live.console.print(f"{_title(config)} -> {folder}", highlight=False, markup=False)
        self.task = self.progress.add_task("epoch", total=config.optim.epochs, completed=first_epoch)
        self.live.update(self.progress)

    def epoch(self, record: dict[str, Any]) -> None:
        """Advance the bar. Figures that are not measured every epoch stay visible."""
        kept = {key: self.latest[key] for key in _MEASURED if key in self.latest}
        self.latest = kept | record
        self.progress.update(self.task, completed=record["epoch"])
        self.live.update(Group(self.progress, Text(describe(self.latest))))

    def note(self, text: str) -> None:
        """Above the bar."""
        self.live.console.print(text, highlight=False, markup=False)


@contextmanager
def display_for(*, quiet: bool) -> Iterator[Display]:
    """The display that fits the output."""
    if quiet:
        yield Display()
    elif not sys.stdout.isatty():
        yield PlainDisplay()
    else:
        with Live(console=Console()) as live:
            yield LiveDisplay(live)


def print_summary(summary: dict[str, Any], config: Config, folder: Path, *, warn: bool = True) -> None:
    """The figures that matter, and where the rest is. ``warn`` repeats the warning of a run, if it has one."""
    table = Table(show_header=False, box=None, pad_edge=False)
    unseen = "test" if "test_accuracy" in summary else "holdout"
    # manifests of 0.3 do not name the classes, but their data sets are known
    known = DATASETS.get(config.data.name)
    classes = len(RunFolder(folder).class_names) or (known.classes if known else 1)
    best = maximal_rate_reduction(config.model.dim, classes, eps_sq=config.objective.eps_sq)

    def figures(form: str, *names: str) -> str:
        """A folder may lack some: a dash."""
        return ", ".join(
            format(value, form) if isinstance(value := summary.get(name), int | float) else "–" for name in names
        )

    rows = [
        (f"{unseen} accuracy, nearest subspace", figures(".4f", f"{unseen}_accuracy")),
        (
            "  nearest class mean, neighbours",
            figures(".4f", f"{unseen}_class_mean_accuracy", f"{unseen}_neighbours_accuracy"),
        ),
    ]
    if "head_accuracy" in summary:
        rows.append(("  its own head", figures(".4f", "head_accuracy")))
    if "readout" in summary:
        rows.append(("  it predicts by", "its head" if summary["readout"] == "head" else "the nearest subspace"))
    rows += [
        ("ΔR, whole training set", f"{figures('.2f', 'train_delta_r')} of at most {best:.2f}"),
        ("  R, R_c", figures(".2f", "expansion", "compression")),
        ("ΔR, mean over batches", figures(".2f", "batch_delta_r")),
        ("|cosine| within a class, between", figures(".3f", "within_cosine", "between_cosine")),
        ("effective rank of a class", figures(".1f", "effective_rank")),
    ]
    if summary.get("calibration_samples"):
        error = f", error {figures('.4f', 'calibration_error')}" if "calibration_error" in summary else ""
        rows.append(("probabilities calibrated on", f"{figures(',', 'calibration_samples')} samples{error}"))
    if "seconds" in summary:
        rows.append(("epochs, seconds of training", f"{_epochs(summary)}, {figures('.1f', 'seconds')}"))
    if "best_epoch" in summary:
        rows.append(("weights of epoch", f"{summary['best_epoch']}"))
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    console.print(table)
    if warn and "warning" in summary:
        console.print(f"warning: {summary['warning']}", markup=False, soft_wrap=True)
    console.print(f"run folder: {folder}", markup=False, soft_wrap=True)


def _epochs(summary: dict[str, Any]) -> str:
    return f"{summary.get('epochs', '–')}" + (f" of {summary['planned_epochs']}" if "planned_epochs" in summary else "")


def _title(config: Config) -> str:
    return (
        f"{config.title}: {config.objective.name}, {config.model.name}, d = {config.model.dim}, "
        f"{config.optim.epochs} epochs"
    )
