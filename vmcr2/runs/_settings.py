"""How a run is made and watched. Only the seed, the precision and the classifier's dimensions decide the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._shared import ABOVE_ZERO, Settings, setting
from ..data import ROWS
from ..training import Precision


@dataclass(frozen=True)
class RunSettings(Settings):
    """The section ``run`` of a configuration."""

    components: int = setting(0, at_least=0)
    """Dimensions per class of the nearest-subspace classifier; 0 is ⌊d/k⌋."""
    readout: Literal["auto", "head", "subspace"] = "auto"
    """What the run predicts by. "auto": the objective's head, if it has one; with a hold-out, what is better there."""
    average_flips: bool = setting(False, idle_with={"data": ROWS})
    """Measure and predict by the mean of a picture's features and its mirror image's. It costs twice the time."""
    average_shifts: int = setting(0, at_least=0, idle_with={"data": ROWS})
    """Measure and predict by the mean over the picture and its copies, moved by this many pixels in eight directions;
    0 for none. It takes 9 times as long, with ``average_flips`` 18 times."""
    kept_samples: int = setting(5000, at_least=0, decides=False)
    """Training samples whose features (half precision) and thumbnails the run keeps for ``run.neighbors``, the same
    number of each class. A sample of a colour picture takes 2·d + 3,072 bytes. 0 for none."""
    start_from: str | None = None
    """A finished run's folder: its network's weights are the first weights. Layers that do not fit are drawn."""
    seed: int = setting(0, at_least=0, below=2**63)
    """Of the network's first weights, the order of samples, augmentation and dropout."""
    device: str = setting("auto", decides=False)
    """"cpu", "cuda", or "auto": cuda if there is one."""
    precision: Precision = "auto"
    """Of the network; objectives stay in float32. "auto" is bfloat16 on a GPU, float32 elsewhere."""
    engine: Literal["auto", "eager", "captured"] = setting("auto", decides=False)
    """"captured" replays the step as one CUDA graph; "auto" does so on a GPU, if it can."""
    compile: Literal["auto", "yes", "no"] = setting("auto", decides=False)
    """torch.compile of augmentation and network; "auto" is "no": the built-in networks have faster kernels."""
    stream: Literal["auto", "yes", "no"] = setting("auto", decides=False)
    """Whether pictures stay on the host and come to the device batch by batch; "auto" does so if they do not fit."""
    log_every: int = setting(0, at_least=0, decides=False)
    """Epochs between lines of metrics. 0: about 100 lines over the run."""
    eval_every: int = setting(0, at_least=0, decides=False, decides_with={"patience": ABOVE_ZERO})
    """Epochs between measurements on the whole training set and the hold-out. 0: only at the end; with a
    hold-out also ten times during the run. With ``patience``, at most a fifth of it. During the run no views are
    averaged."""
    patience: int = setting(0, at_least=0)
    """Early stopping: the run ends after so many epochs without a better held-out accuracy, and keeps the weights of
    the best epoch. It needs ``holdout`` or ``validation``. 0: the run makes all its epochs."""
    checkpoint_seconds: float = setting(20.0, at_least=0, decides=False)
    """The shortest time between checkpoints; 0 writes one after every epoch."""
