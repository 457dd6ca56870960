"""Many short runs by one command: points of a grid, several at a time, compared on held-out training images only."""

from ._points import Point as Point, changes as changes, grid as grid, read_axes as read_axes
from ._results import Results as Results, sole_user as sole_user
from ._runs import Job as Job, Outcome as Outcome, Runner as Runner, prune as prune
from ._sweep import Sweep as Sweep, SweepListener as SweepListener, sweep as sweep
from ._table import rank as rank, score as score, table as table
from ._workers import Maker as Maker, run_in_processes as run_in_processes, sharing as sharing
