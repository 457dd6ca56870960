"""How a run is made and watched. Only the seed, the precision and the classifier's dimensions decide what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._shared import Settings, setting
from ..training import Precision


@dataclass(frozen=True)
class RunSettings(Settings):
    """The section ``run`` of a configuration."""

    components: int = setting(0, at_least=0)
    """Dimensions per class of the nearest-subspace classifier; 0 is ⌊d/k⌋."""
    seed: int = setting(0, at_least=0, below=2**63)
    """Of the network's start, the order of samples, augmentation and dropout."""
    device: str = setting("auto", decides=False)
    """"cpu", "cuda", or "auto": cuda where there is one."""
    precision: Precision = "auto"
    """Of the network; objectives stay in float32. "auto" is bfloat16 on a GPU, float32 elsewhere."""
    engine: Literal["auto", "eager", "captured"] = setting("auto", decides=False)
    """"captured" replays the step as one CUDA graph; "auto" does so on a GPU, if it can."""
    compile: Literal["auto", "yes", "no"] = setting("auto", decides=False)
    """torch.compile of the network; "auto" where the run is long enough to win the compile time back."""
    log_every: int = setting(0, at_least=0, decides=False)
    """Epochs between lines of metrics. 0: about 100 lines over the run."""
    eval_every: int = setting(0, at_least=0, decides=False)
    """Epochs between measurements on the whole training set and the hold-out. 0: at the end only, and with a hold-out
    ten times on the way."""
    checkpoint_seconds: float = setting(20.0, at_least=0, decides=False)
    """Least time between checkpoints; 0 writes one after every epoch."""
