"""How a step is run: step by step on a CPU, on a GPU as one CUDA graph that is replayed.

A graph holds every kernel of a step, augmentation to optimiser, with the addresses of its buffers: a replay costs the
host next to nothing, and branches of the step run side by side. The first steps of a run are made one by one, since
libraries choose their kernels then; the next is captured. So a captured run makes exactly the steps of an eager one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .._shared import UserError
from ._config import Config
from ._step import Step

WARM_UP = 3
"""Steps before the capture."""

# Images that a run must see for a compiled network to win its compile time back (benchmarks/README.md). For the ResNets
# it does not pay: their own fused kernels are as fast. An MLP is all matrix products: nothing to gain.
_COMPILE_FROM = {"mnist-cnn": 10_000_000}
# … and for cuDNN's search: 6 s for a ResNet, which then gains little; MNIST's few convolutions gain more, at once.
_SEARCH_FROM = {"mnist-cnn": 0}
_SEARCH_FROM_ELSE = 50_000_000


class Engine:
    """Runs a step again and again: ``engine()`` is ``step()``, as fast as the device allows.

    Args:
        step: what to run. Its buffers are read at every call.
        images: how many the run will see, by which compiling is decided.
        say: is told, in a sentence, if the fast way is not possible.
    """

    def __init__(self, step: Step, images: int, say: Callable[[str], None] = lambda text: None) -> None:
        self.step = step
        self.say = say
        self.captures = _captures(step.config, step.device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._made = 0
        step.search = images >= _SEARCH_FROM.get(step.config.model, _SEARCH_FROM_ELSE)
        if _compiles(step.config, step.device, images):
            step.half = None  # the compiler fuses casts itself
            step.forward = torch.compile(step.featurize, dynamic=False)

    @property
    def captured(self) -> bool:
        """Whether steps are replays by now."""
        return self._graph is not None

    def __call__(self) -> None:
        """One step."""
        if self.captures and self._graph is None and self._made >= WARM_UP:
            self._capture()
        if self._graph is not None:
            self._graph.replay()
        elif self.captures:
            self._beside()
        else:
            self.step()
        self._made += 1

    def renew(self) -> None:
        """The step has changed: what was recorded of it is thrown away, and recorded again after a new warm-up."""
        self._graph = None
        self._made = 0

    def _beside(self) -> None:
        """A step on a stream of its own, as warm-up for a capture has to be."""
        stream = torch.cuda.Stream(self.step.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.step.device))
        with torch.cuda.stream(stream):
            self.step()
        torch.cuda.current_stream(self.step.device).wait_stream(stream)

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        before = torch.cuda.current_stream(self.step.device)
        try:
            torch.cuda.synchronize(self.step.device)
            with torch.cuda.graph(graph):
                self.step()
        except RuntimeError as error:
            torch.cuda.set_stream(before)  # a capture that breaks may leave its own stream behind
            if self.step.config.engine == "captured":
                raise UserError(f"the step cannot be captured in a CUDA graph: {_first_line(error)}") from error
            self.captures = False
            torch.cuda.synchronize(self.step.device)
            self.say(f"the step cannot be captured in a CUDA graph ({_first_line(error)}): going on without, slower")
            return
        self._graph = graph


def _captures(config: Config, device: torch.device) -> bool:
    if config.engine == "captured" and device.type != "cuda":
        raise UserError("engine captured needs a CUDA device: use engine auto or eager")
    return device.type == "cuda" and config.engine != "eager"


def _compiles(config: Config, device: torch.device, images: int) -> bool:
    if config.compile == "auto":
        return device.type == "cuda" and images >= _COMPILE_FROM.get(config.model, images + 1)
    return config.compile == "yes"


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]
