"""Training: tensors in, tensors out, no files. One loop serves the trainer (runs) and the estimators (sklearn)."""

from ._engine import Capture as Capture, Engine as Engine, check_capture as check_capture
from ._loop import Loop as Loop, TrainingError as TrainingError, batch_figures as batch_figures
from ._numerics import (
    Numerics as Numerics,
    Precision as Precision,
    choose_device as choose_device,
    forked_random as forked_random,
)
from ._samples import (
    Inputs as Inputs,
    NoisyRows as NoisyRows,
    Rows as Rows,
    Samples as Samples,
    embed as embed,
    epoch_order as epoch_order,
    even_batch as even_batch,
    order_generator as order_generator,
)
from ._schedule import learning_rate as learning_rate
from ._settings import OptimSettings as OptimSettings
from ._step import Optimizer as Optimizer, Step as Step
