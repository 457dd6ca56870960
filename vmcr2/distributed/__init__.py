"""What several processes share: the batch of all of them, with the right gradient, and what they decide."""

from ._gather import gather_rows as gather_rows, processes as processes
from ._gathering import Gathering as Gathering, rows_are_whole as rows_are_whole
from ._gradients import GradientSum as GradientSum
from ._lost import losses_as as losses_as
from ._norm import global_batch_norm as global_batch_norm
from ._ranks import (
    ALONE as ALONE,
    EndedByAnother as EndedByAnother,
    Ranks as Ranks,
    joined as joined,
    leave_together as leave_together,
)
from ._whole_batch import WholeBatch as WholeBatch, in_whole_batch as in_whole_batch, rows_before as rows_before
