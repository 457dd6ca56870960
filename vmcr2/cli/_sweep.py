"""`vmcr2 sweep`: every point of a grid, or a search."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from ..runs import Config, UserError
from ..sweep import (
    OBJECTIVE,
    STUDY,
    Point,
    Sweep,
    grid,
    rank,
    read_axes,
    read_ranges,
    search as run_search,
    sweep as run_sweep,
    table,
    winner,
)
from ._ranks import refuse_torchrun
from ._settings import OBJECTIVE_HELP, Label, complain, names_of, refuse_twice
from ._sweep_display import sweep_display
from ._winner import Typed, train_command


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
    trials: Annotated[
        int | None, typer.Option(help="Search instead: so many trials of --range and --choice, by Optuna.")
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="KEY=LOW:HIGH[:log]", help="Of a search: a range of a setting; repeatable."),
    ] = None,
    choices: Annotated[
        list[str] | None,
        typer.Option("--choice", metavar="KEY=V1,V2", help="Of a search: values to choose from; repeatable."),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Of a search: its database. Whoever starts the same command with the same URL takes a share of the "
            "trials, on any machine. By default SQLite in --out.",
        ),
    ] = None,
    study: Annotated[str, typer.Option(help="Of a search: its name in the database.")] = STUDY,
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="Of a search: stop runs early that are worse than the median.")
    ] = True,
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
    """Train at every point of a grid, or search, and compare on held-out training images; the test set is never read.

    \b
    vmcr2 sweep digits --grid lr=0.1,0.3 --seeds 0,1 --out sweeps/lr
    vmcr2 sweep cifar100 --epochs 100 --grid lr=0.1,0.3 --grid weight=10,20,40 --parallel 3 --out sweeps/a
    vmcr2 sweep digits --grid 'hidden=256,256;512' --out sweeps/hidden
    vmcr2 sweep digits --grid objective=vmcr2,mcr2,ce --out sweeps/objectives
    vmcr2 sweep digits --trials 30 --range lr=0.01:1:log --choice objective=vmcr2,mcr2 --out sweeps/b
    Give the same command again to continue a stopped sweep, or to add points to the grid.
    """
    refuse_torchrun("sweep")
    typed = Typed(recipe, objective, data, label, epochs, holdout, device, set_ or [])
    varied: dict[str, Any] = dict(read_axes(axes or []))
    searched = _searched(ranges or [], choices or [])
    only_in_a_search = {
        **{"--range": ranges, "--choice": choices, "--storage": storage},
        **{"--study": study != STUDY, "--no-prune": not prune},
    }
    _check_kind(trials, bool(varied), only_in_a_search)
    refuse_twice(own=typed.options(), grid=varied, set=names_of(typed.settings))
    refuse_twice(own=typed.options(), search=searched, set=names_of(typed.settings))
    objectives = [*varied.get(OBJECTIVE, ()), *searched.get(OBJECTIVE, ())]
    base = typed.config_of(objectives)
    _check_holdout(base(_first(objectives)), typed)
    with sweep_display(quiet=as_json) as display, _terminated_like_interrupted():
        shared: dict[str, Any] = {"parallel": parallel, "keep_weights": keep_weights, "listener": display}
        try:
            if trials is None:
                done = run_sweep(_points(base, varied, seeds, objectives), out, **shared)
            else:
                of_search: dict[str, Any] = {
                    "trials": trials,
                    "storage": storage,
                    "study": study,
                    "prune": prune,
                    "say": complain,
                }
                made = _with_seed(base, seeds)
                first = made([f"{OBJECTIVE}={objectives[0]}"] if objectives else [])
                done = run_search(first, searched, out, **shared, **of_search, config_of=made)
        except KeyboardInterrupt:
            complain(f"stopped; give the same command again to continue {out}")
            raise typer.Exit(130) from None
    _show(done, typed, objectives, trials=trials, as_json=as_json)
    if done.lost:
        complain(
            f"{len(done.lost)} of {len(done.points)} runs ended without a result; the same command tries them again"
        )
        raise typer.Exit(1)


def _show(done: Sweep, typed: Typed, objectives: list[str], *, trials: int | None, as_json: bool) -> None:
    """The table, and the command of the best point."""
    out = done.out
    rows, best = rank(done.points, done.records), winner(done.points, done.records)
    command = train_command(typed, best, objectives) if best is not None else None
    if as_json:
        lost = [
            {"point": dict(p.settings), "seed": p.config.run.seed, "why": done.lost[p.id]}
            for p in done.points
            if p.id in done.lost
        ]
        shown = {"folder": str(out), "runs": done.lines, "table": [row._asdict() for row in rows], "lost": lost}
        typer.echo(json.dumps(shown | {"command": command}, ensure_ascii=False))
    elif rows:
        typer.echo("\n" + table(rows))
        if best is not None and command is not None:
            on = f"; without --holdout {best.config.data.holdout} it trains on all images, and reads the test set"
            typer.echo(f"\nThe best, {best.label}, as a run of its own{on}:\n  {command}")
        count = f"{len(done.lines)} of {len(done.points) if trials is None else trials}"
        kind = "runs have a line" if trials is None else "trials have a result, and those of this folder a line"
        typer.echo(f"\n{count} {kind} in {out}/results.jsonl")


def _searched(ranges: list[str], choices: list[str]) -> dict[str, Any]:
    found, chosen = read_ranges(ranges), read_axes(choices, "--choice")
    for name in found.keys() & chosen.keys():
        raise UserError(f"{name} is set twice, by --range and by --choice: leave one out")
    return {**found, **chosen}


def _check_kind(trials: int | None, has_grid: bool, of_search: dict[str, Any]) -> None:
    """Either a grid or a search."""
    if trials is not None and has_grid:
        raise UserError(
            "--grid makes every combination, and --trials searches: with --trials give --range and --choice"
        )
    for option, given in of_search.items():
        if trials is None and given:
            raise UserError(f"{option} is for a search: give --trials N too")


def _check_holdout(base: Config, typed: Typed) -> None:
    said = typed.holdout is not None or "holdout" in names_of(typed.settings)
    if said and base.data.holdout == 0:
        raise UserError(
            "holdout must be above 0 in a sweep, which never reads the test set: leave it out to use the default"
        )


def _points(
    config_of: Callable[[list[str]], Config], axes: dict[str, list[str]], seeds: str | None, objectives: list[str]
) -> list[Point]:
    if seeds is not None:
        if "seed" in axes:
            raise UserError("--seeds and --grid seed=… set the same: leave one out")
        axes = axes | read_axes([f"seed={seeds}"])
    return grid(config_of(_first(objectives)), axes, config_of)


def _first(objectives: list[str]) -> list[str]:
    """The text of the first objective, if it varies: the usual one may not take the settings that were given."""
    return [f"{OBJECTIVE}={objectives[0]}"] if objectives else []


def _with_seed(config_of: Callable[[list[str]], Config], seeds: str | None) -> Callable[[list[str]], Config]:
    if seeds is None:
        return config_of
    if "," in seeds:
        raise UserError(
            "a search makes every trial with one seed: give one, and compare the best by --grid and --seeds"
        )
    return lambda texts: config_of([*texts, f"seed={seeds}"])


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C: all stop the workers and MPS. What is ignored (nohup) stays so."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # not Windows
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)
