"""Many short runs by one command: points of a grid, several at a time, compared on held-out training images only."""

from ._points import Point, changes, grid, read_axes
from ._results import Results, sole_user
from ._runs import Job, Outcome, Runner, prune
from ._sweep import Sweep, SweepListener, sweep
from ._table import rank, table
from ._workers import Maker, run_in_processes, sharing

__all__ = [
    "Job",
    "Maker",
    "Outcome",
    "Point",
    "Results",
    "Runner",
    "Sweep",
    "SweepListener",
    "changes",
    "grid",
    "prune",
    "rank",
    "read_axes",
    "run_in_processes",
    "sharing",
    "sole_user",
    "sweep",
    "table",
]
