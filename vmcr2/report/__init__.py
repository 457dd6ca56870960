"""What came out of runs, to look at: one HTML page, figures for a paper, tables. Reads run folders and nothing else."""

from ._figures import write_figures
from ._groups import group_runs
from ._page import page, write_report
from ._read import RunRecord, read_run
from ._tables import render, results_table

__all__ = ["RunRecord", "group_runs", "page", "read_run", "render", "results_table", "write_figures", "write_report"]
