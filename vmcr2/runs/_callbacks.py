"""Callbacks follow a run: people subclass :class:`Callback`, or give any object that has some of its methods."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ._config import Config

if TYPE_CHECKING:
    from ._run import Run

_METHODS = ("started", "epoch", "note", "finished", "failed")


class Callback:
    """Follows a run. Overwrite what you need: these methods do nothing.

    After ``started`` comes either ``finished`` or ``failed``. An exception that a method raises ends the run; where
    ``epoch`` raises it, a checkpoint is written first, so that the run can go on.

    >>> import tempfile, vmcr2
    >>> class Losses(vmcr2.Callback):
    ...     def __init__(self):
    ...         self.seen = []
    ...     def epoch(self, record):
    ...         self.seen.append(record["loss"])
    ...         return len(self.seen) == 2
    >>> losses = Losses()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = vmcr2.fit(vmcr2.recipe("digits", epochs=50), out=f"{folder}/mine", callbacks=[losses])
    >>> run.summary["epochs"], len(losses.seen)
    (2, 2)
    """

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        """Before the first step. ``first_epoch`` epochs are done already: 0, unless the run is resumed."""

    def epoch(self, record: dict[str, Any]) -> bool | None:
        """After every epoch that has a line of metrics, with that line: see ``log_every`` for how often.

        True ends the run after this epoch. It is then measured, and has a summary.
        """

    def note(self, text: str) -> None:
        """Something that a person should know, in a sentence. If no callback takes notes, problems are warnings."""

    def finished(self, run: Run) -> None:
        """The run is measured, and its folder is complete."""

    def failed(self, error: BaseException) -> None:
        """The run ends without a result: an error, or somebody stopped it (KeyboardInterrupt, SystemExit)."""


class Callbacks:
    """Several callbacks as one. A method that one of them does not have is left out."""

    def __init__(self, callbacks: Iterable[Any] = ()) -> None:
        self._all = _checked(callbacks)

    def started(self, config: Config, folder: Path, first_epoch: int) -> None:
        """To all, in order. An error stops here: nothing was trained yet."""
        for method in self._methods("started"):
            method(config, folder, first_epoch)

    def epoch(self, record: dict[str, Any]) -> bool:
        """To all, each with its own copy. Returns whether one of them wants to stop."""
        answers = self._to_all("epoch", lambda: (dict(record),))
        return any(map(_is_true, answers))

    def note(self, text: str, problem: type[Warning] | None = UserWarning) -> None:
        """To all that take notes. If nobody does, a ``problem`` is a warning, and anything else is not said."""
        if methods := self._methods("note"):
            for method in methods:
                method(text)
        elif problem is not None:
            warnings.warn(text, problem, stacklevel=2)

    def finished(self, run: Run) -> None:
        """To all."""
        self._to_all("finished", lambda: (run,))

    def failed(self, error: BaseException) -> None:
        """To all. What they raise themselves becomes a warning: the first error is what people must see."""
        for method in self._methods("failed"):
            try:
                method(error)
            except Exception as other:
                warnings.warn(f"a callback broke in failed(): {type(other).__name__}: {other}", stacklevel=2)

    def _to_all(self, name: str, arguments: Callable[[], tuple[Any, ...]]) -> list[Any]:
        """Call a method of all, also where one raises an error: the others must not miss an epoch. Then raise it."""
        answers, errors = [], []
        for method in self._methods(name):
            try:
                answers.append(method(*arguments()))
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return answers

    def _methods(self, name: str) -> list[Callable[..., Any]]:
        return [getattr(callback, name) for callback in self._all if _has(callback, name)]


def _has(callback: Any, name: str) -> bool:
    """Whether it has a method of its own. Those of :class:`Callback` do nothing, so they do not count."""
    return callable(getattr(callback, name, None)) and getattr(type(callback), name, None) is not getattr(
        Callback, name
    )


def _checked(callbacks: Iterable[Any]) -> list[Any]:
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
        raise TypeError(f"callbacks takes a list, got {callbacks!r}: write callbacks=[…]")
    found = list(callbacks)
    for one in found:
        if isinstance(one, type):
            raise TypeError(f"callbacks takes objects, got the class {one.__name__}: write {one.__name__}()")
        if not isinstance(one, Callback) and not any(_has(one, name) for name in _METHODS):
            raise TypeError(f"{one!r} is not a callback: it has none of the methods {', '.join(_METHODS)}")
    return found


def _is_true(answer: Any) -> bool:
    """True of Python, NumPy or torch. Not 1.0: a short function may return anything."""
    if isinstance(answer, Tensor):
        return answer.dtype == torch.bool and answer.numel() == 1 and bool(answer)
    return type(answer).__name__ in ("bool", "bool_") and bool(answer)
