"""Many short runs by one command: a grid, or a search that several machines share. Held-out images compare them."""

from ._best import best_runs as best_runs, is_sweep as is_sweep
from ._objective_axis import OBJECTIVE as OBJECTIVE, acts_with as acts_with
from ._points import Point as Point, changes as changes, grid as grid, read_axes as read_axes
from ._results import Results as Results, sole_user as sole_user
from ._runs import Job as Job, Outcome as Outcome, Runner as Runner, prune as prune
from ._search import STUDY as STUDY, search as search
from ._space import Range as Range, read_ranges as read_ranges
from ._sweep import Sweep as Sweep, SweepListener as SweepListener, sweep as sweep
from ._table import rank as rank, score as score, table as table, winner as winner
from ._workers import Maker as Maker, run_in_processes as run_in_processes, sharing as sharing
