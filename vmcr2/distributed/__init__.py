"""What several processes share: the batch of all of them, with the right gradient."""

from ._gather import gather_rows as gather_rows, processes as processes
from ._gathering import Gathering as Gathering
