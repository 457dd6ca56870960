"""Runs training steps: by calls on a CPU, as one CUDA graph that is replayed on a GPU.

A graph holds every kernel of a step, from augmentation to optimiser, with the addresses of its buffers. A replay costs
the host almost nothing, and branches of the step run side by side. The first steps of a run are called one by one,
because libraries choose their kernels then; the next is captured. So a captured run makes exactly the steps of an
eager one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from .._shared import UserError
from ._step import Step

Capture = Literal["auto", "eager", "captured"]

WARM_UP = 3
"""Steps before the capture."""


class Engine:
    """Runs a step again and again: ``engine()`` is ``step()``, as fast as the device allows.

    Args:
        step: what to run. Its buffers are read at every call.
        capture: "captured" replays the step as one CUDA graph; "auto" does so on a GPU, if it can.
        compiled: whether torch.compile is used on the network.
        search: whether cuDNN tries its algorithms in the first steps.
        say: is told, in a sentence, if the fast way is not possible.
    """

    def __init__(
        self,
        step: Step,
        *,
        capture: Capture = "auto",
        compiled: bool = False,
        search: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.step = step
        self.say = say
        self.device = step.numerics.device
        check_capture(capture, self.device)
        self.captures = self.device.type == "cuda" and capture != "eager"
        self._must_capture = capture == "captured"
        self._graph: torch.cuda.CUDAGraph | None = None
        self._made = 0
        step.search = search
        if compiled:
            step.half = None  # the compiler fuses casts itself
            step.forward = torch.compile(step.featurize, dynamic=False)

    @property
    def captured(self) -> bool:
        """Whether steps are replayed now."""
        return self._graph is not None

    def __call__(self) -> None:
        """One step."""
        if self.captures:
            self.step.prepare()
        if self.captures and self._graph is None and self._made >= WARM_UP:
            self._capture()
        if self._graph is not None:
            self._graph.replay()
            self.step.forget()
        elif self.captures:
            self._beside()
        else:
            self.step()
        self._made += 1

    def renew(self) -> None:
        """The step has changed: drop what was recorded of it, and record it again after a new warm-up."""
        self._graph = None
        self._made = 0

    def _beside(self) -> None:
        """One step on its own stream: the warm-up for a capture must run like this."""
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            self.step()
        torch.cuda.current_stream(self.device).wait_stream(stream)

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        before = torch.cuda.current_stream(self.device)
        try:
            torch.cuda.synchronize(self.device)
            # with several processes nccl's own thread looks at events meanwhile, which is not an error
            mode = "thread_local" if self.step.ranks.active else "global"
            with torch.cuda.graph(graph, capture_error_mode=mode):
                self.step()
        except RuntimeError as error:
            torch.cuda.set_stream(before)  # a failed capture may leave its own stream selected
            if self._must_capture:
                raise UserError(f"the step cannot be captured in a CUDA graph: {_first_line(error)}") from error
            self.captures = False
            torch.cuda.synchronize(self.device)
            self.say(
                f"the step cannot be captured in a CUDA graph ({_first_line(error)}): continuing without, more slowly"
            )
            return
        self._graph = graph


def check_capture(capture: Capture, device: torch.device) -> None:
    """A capture that is asked for needs a CUDA device: a :class:`UserError`."""
    if capture == "captured" and device.type != "cuda":
        raise UserError("engine captured needs a CUDA device: use engine auto or eager")


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]
