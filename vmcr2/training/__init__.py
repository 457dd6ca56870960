"""Training: tensors in, tensors out, no files. One loop serves the trainer (runs) and the estimators (sklearn)."""

from ._engine import Capture, Engine
from ._loop import Loop, TrainingError, batch_figures
from ._numerics import Numerics, Precision, choose_device, forked_random
from ._samples import Inputs, Rows, Samples, embed, epoch_order, order_generator
from ._settings import OptimSettings
from ._step import Step

__all__ = [
    "Capture",
    "Engine",
    "Inputs",
    "Loop",
    "Numerics",
    "OptimSettings",
    "Precision",
    "Rows",
    "Samples",
    "Step",
    "TrainingError",
    "batch_figures",
    "choose_device",
    "embed",
    "epoch_order",
    "forked_random",
    "order_generator",
]
