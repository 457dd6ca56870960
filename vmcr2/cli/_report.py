"""`vmcr2 report`, and the page at the end of a run. matplotlib and jinja2 are imported only when they are needed."""

from __future__ import annotations

import enum
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..runs import RunFolder, UserError
from ..sweep import best_runs, is_sweep
from ._settings import complain

PAGE = "report.html"


class Form(enum.StrEnum):
    """The formats of a printed table."""

    md = "md"
    latex = "latex"
    html = "html"


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, finished or not; or folders of sweeps.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", help="The page; by default report.html in the one folder that is named, else in ./"
        ),
    ] = None,
    best: Annotated[int, typer.Option(help="Of a sweep's folder: so many runs, the best on held-out images.")] = 20,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write every picture here too, as SVG and PNG.")
    ] = None,
    table: Annotated[
        Form | None, typer.Option(help="Print only the table of all runs (paper, ours, ± over seeds); make no page.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Make one HTML page that shows what a run learned, or compares several runs.

    \b
    vmcr2 report runs/mine                       the page, in the run's folder
    vmcr2 report runs/* -o compared.html         several runs on one page
    vmcr2 report runs/mine --figures pictures    SVG and PNG for a paper
    vmcr2 report runs/* --table latex            paper, ours, ± over seeds
    vmcr2 report sweeps/a                        the best 20 runs of a sweep, best first
    """
    from ..report import group_runs, read_run, render, results_table, write_figures, write_report

    records = [read_run(run) for folder in runs for run in _runs_of(folder, best)]
    made: dict[str, object] = {}
    if table is None or out is not None:
        made["report"] = str(write_report(records, out or (runs[0] / PAGE if len(runs) == 1 else Path(PAGE))))
    if figures is not None:
        made["figures"] = [str(path) for path in write_figures(records, figures)]
    if table is not None:
        made["table"] = render(results_table(records, group_runs(records)), table.value)
    if as_json:
        typer.echo(json.dumps(made, ensure_ascii=False))
        return
    if "table" in made:
        typer.echo(made["table"], nl=False)
    said = sys.stderr if "table" in made else sys.stdout  # so that a pipe gets the table alone
    if "report" in made:
        print(f"report: {made['report']}", file=said)
    if figures is not None:
        print(f"figures: {figures} ({len(list(figures.glob('*.svg')))} pictures, SVG and PNG)", file=said)


def _runs_of(folder: Path, best: int) -> list[Path]:
    """The folder itself, or the best runs of a sweep's folder."""
    if best < 1:
        raise UserError(f"--best must be at least 1, got {best}")
    if not is_sweep(folder):
        return [folder]
    shown, total = best_runs(folder, best)
    if len(shown) < total:
        complain(f"{folder}: the best {len(shown)} of {total} runs; --best N takes others")
    return shown


def is_current(folder: Path) -> bool:
    """Whether the run has a page that was made after its summary."""
    page, summary = folder / PAGE, RunFolder(folder).summary
    return page.exists() and page.stat().st_mtime_ns >= summary.stat().st_mtime_ns


def report_after(folder: Path) -> Path | None:
    """Make the page of a run that has just ended. If that fails, print a sentence, no error: the run is done."""
    try:
        from ..report import read_run, write_report

        return write_report([read_run(folder)], folder / PAGE)
    except UserError as error:
        print(f"vmcr2: the run is done, but there is no report: {error}", file=sys.stderr)
    except Exception as error:  # a page that fails must not make the run fail
        print(f"vmcr2: the run is done, but its report failed ({type(error).__name__}: {error})", file=sys.stderr)
    return None
