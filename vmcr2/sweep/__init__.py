"""Many short runs by one command: points of a grid, several at a time, judged on held-out training images alone."""

from ._points import Point, grid, read_axes
from ._sweep import Sweep, SweepListener, sweep
from ._table import rank, table

__all__ = ["Point", "Sweep", "SweepListener", "grid", "rank", "read_axes", "sweep", "table"]
