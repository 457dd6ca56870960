"""Shows the results of runs: one HTML page, figures for a paper, tables. It reads run folders and nothing else."""

from ._figures import write_figures as write_figures
from ._groups import group_runs as group_runs
from ._page import page as page, write_report as write_report
from ._paper import paper_figures as paper_figures
from ._plots import Plots as Plots, plots_of as plots_of
from ._read import RunRecord as RunRecord, read_run as read_run
from ._tables import render as render, results_table as results_table, spread as spread
