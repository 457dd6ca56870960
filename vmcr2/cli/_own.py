"""A person's own data on the command line: opened with a progress bar, and described before training."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from .._shared import shown
from ..data import Progress as Report, Source, aside_rows, open_own
from ..runs import Config, UserError, is_own_data

_SHOWN = (
    *("objective", "model", "hidden", "dim", "image_size", "augmentation", "input_noise", "batch_size", "epochs"),
    *("optimizer", "lr", "weight_decay", "rate_weight"),
)
"""The settings that a person sees before a training; `vmcr2 recipes DIR` shows all, and why."""


def own_data(recipe: str | None, data: Path | None) -> str | None:
    """The path of a person's own data, if one of the two is meant as such; None for a known data set."""
    if recipe is not None:
        if not is_own_data(recipe):
            return None
        if data is not None:
            raise UserError(f"{recipe} and --data {data} both say where the data are: leave one out")
        return recipe
    return str(data) if data is not None else None


def open_shown(path: str, given: Mapping[str, Any], *, strict: bool) -> Source:
    """Open a person's own data, with a progress bar on stderr where that is a terminal."""
    with progress_bar() as report:
        return open_own(path, given, strict=strict, progress=report)


@contextmanager
def progress_bar() -> Iterator[Report]:
    """A function that shows how far a long reading is: what is done, how many, of how many."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn(bar_width=24), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield report


def describe(source: Source, config: Config) -> None:
    """Print what was read, and with which settings it will be trained on."""
    sizes = source.train_labels.bincount(minlength=source.num_classes)
    shape = "×".join(map(str, source.sample_shape))
    what = f"pictures of {shape}" if source.is_pictures else f"rows of {shape} numbers"
    low, high = int(sizes.min()), int(sizes.max())
    each = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    typer.echo(f"{source.title}: {int(sizes.sum()):,} training {what}, {source.num_classes} classes of {each}")
    for note in source.notes:
        typer.echo(f"  {note}")
    own = config.data
    aside = 0
    if not (own.holdout or own.validation):
        aside = int(aside_rows(source.train_labels, own.calibration_share, source.num_classes).sum())
    if aside:
        typer.echo(
            f"  {aside:,} of the training samples are set aside, for probabilities and refusal (calibration_share)."
        )
    flat = config.acting()
    values = ", ".join(f"{name} {_short(flat[name])}" for name in _SHOWN if name in flat)
    typer.echo(f"settings by the rule: {values}")
    if sys.stdout.isatty():
        typer.echo(f"(`vmcr2 recipes {source.path}` shows all settings and why; --set NAME=VALUE changes one)")


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else shown(value)
