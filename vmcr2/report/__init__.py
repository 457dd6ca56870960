"""Shows the results of runs: one HTML page, figures for a paper, tables. It reads run folders and nothing else."""

from ._figures import write_figures
from ._groups import group_runs
from ._page import page, write_report
from ._paper import paper_figures
from ._read import RunRecord, read_run
from ._tables import render, results_table, spread

__all__ = [
    "RunRecord",
    "group_runs",
    "page",
    "paper_figures",
    "read_run",
    "render",
    "results_table",
    "spread",
    "write_figures",
    "write_report",
]
