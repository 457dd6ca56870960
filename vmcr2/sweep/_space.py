"""The space of a search: ranges and choices of settings, and how a trial's values become a point."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .._shared import shown
from ..runs import ALL_SETTINGS, Config, UserError
from ._objective_axis import OBJECTIVE, acts_with, with_objective
from ._points import Point, called, check_axis, point_of

if TYPE_CHECKING:
    import optuna

_DIGITS = 4
"""Significant digits of a value from a range: more say nothing, and nobody wants to type them."""


class Range(NamedTuple):
    """From ``low`` to ``high``, both included; ``log``: every factor is as likely as the same factor elsewhere."""

    low: float
    high: float
    log: bool = False

    def __str__(self) -> str:
        return f"{shown(self.low)}:{shown(self.high)}" + (":log" if self.log else "")


Axis = Range | Sequence[Any]


def read_ranges(texts: Sequence[str]) -> dict[str, Range]:
    """The ranges of ``key=low:high`` and ``key=low:high:log`` texts.

    >>> read_ranges(["lr=0.01:1:log", "batch_size=64:512"])
    {'lr': Range(low=0.01, high=1.0, log=True), 'batch_size': Range(low=64, high=512, log=False)}
    """
    ranges: dict[str, Range] = {}
    for text in texts:
        name, _, values = text.partition("=")
        name = name.strip()
        parts = [part.strip() for part in values.split(":")]
        if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] != "log"):
            raise UserError(f"--range takes key=low:high or key=low:high:log, got {text!r}")
        check_axis(name, "--range")
        if name in ranges:
            raise UserError(f"--range {name} is given twice")
        kind = _number_kind(name)
        try:
            low, high = kind(parts[0]), kind(parts[1])
        except ValueError:
            number = "whole numbers" if kind is int else "numbers"
            raise UserError(f"--range {name} takes {number}, got {values!r}") from None
        ranges[name] = _checked(name, Range(low, high, len(parts) == 3))
    return ranges


class Space:
    """The axes of a search. A trial has a value on each that its objective has.

    Args:
        base: what the values change.
        axes: a :class:`Range` or the values to choose from, by the setting's name.
        config_of: makes a configuration of ``key=value`` texts; by default they are changes of ``base``.
    """

    def __init__(
        self, base: Config, axes: Mapping[str, Axis], config_of: Callable[[list[str]], Config] | None = None
    ) -> None:
        if not axes:
            raise UserError("a search needs something to vary: --range key=low:high, or --choice key=v1,v2")
        self.base, self._config_of = base, config_of
        self.axes: dict[str, Range | list[str]] = {}
        for name in sorted(axes, key=lambda name: name != OBJECTIVE):  # the objective first: others depend on it
            axis = axes[name]
            check_axis(name, "--range" if isinstance(axis, Range) else "--choice")
            if isinstance(axis, Range):
                self.axes[name] = _checked(name, axis)
            else:
                self.axes[name] = list(
                    dict.fromkeys(value if isinstance(value, str) else shown(value) for value in axis)
                )
        chosen = self.axes.get(OBJECTIVE, [])
        self.objectives = chosen if isinstance(chosen, list) else []

    def described(self) -> dict[str, str]:
        """The axes as a person would give them."""
        return {
            name: str(axis) if isinstance(axis, Range) else (";" if "," in "".join(axis) else ",").join(axis)
            for name, axis in self.axes.items()
        }

    def corners(self) -> Iterator[Point]:
        """Points that use every value of every choice, and both ends of every range: a mistake shows at one of them."""
        longest = max(len(axis) if isinstance(axis, list) else 2 for axis in self.axes.values())
        for objective in self.objectives or [""]:
            for turn in range(longest):
                values = {
                    name: axis[turn % len(axis)] if isinstance(axis, list) else (axis.low, axis.high)[turn % 2]
                    for name, axis in self.axes.items()
                }
                if objective:
                    values[OBJECTIVE] = objective
                yield self.point(values)

    def draw(self, trial: optuna.Trial) -> Point:
        """Let the trial choose its values."""
        values: dict[str, Any] = {}
        for name, axis in self.axes.items():
            if not acts_with(name, values.get(OBJECTIVE), self.objectives):
                continue
            if isinstance(axis, list):
                values[name] = trial.suggest_categorical(name, axis)
            elif _number_kind(name) is int:
                values[name] = trial.suggest_int(name, int(axis.low), int(axis.high), log=axis.log)
            else:
                values[name] = trial.suggest_float(name, axis.low, axis.high, log=axis.log)
        return self.point(values)

    def point(self, values: Mapping[str, Any]) -> Point:
        """The point of a trial's values. Those that its objective does not have are left out."""
        texts = {
            name: self._text(name, values[name])
            for name in self.axes
            if name in values and acts_with(name, values.get(OBJECTIVE), self.objectives)
        }
        try:
            config = self._configured(texts)
        except UserError as error:
            raise UserError(f"{error} (the search's point {called(texts)})") from error
        return point_of(config, texts)

    def _text(self, name: str, value: Any) -> str:
        axis = self.axes[name]
        if isinstance(value, float) and isinstance(axis, Range):
            value = min(axis.high, max(axis.low, float(f"{value:.{_DIGITS}g}")))
        return shown(value)

    def _configured(self, texts: dict[str, str]) -> Config:
        if self._config_of is not None:
            return self._config_of([f"{name}={text}" for name, text in texts.items()])
        own = with_objective(self.base, texts.get(OBJECTIVE, self.base.objective.name))
        return own.with_settings([f"{name}={text}" for name, text in texts.items() if name != OBJECTIVE])


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What differs between two searches, in words.

    >>> differences({"space": {"lr": "0.1:1"}}, {"space": {"lr": "0.1:2"}})
    'lr is 0.1:1 there and 0.1:2 here'
    """
    found = []
    for part in sorted(there.keys() | here.keys()):
        old, new = there.get(part, {}), here.get(part, {})
        if not isinstance(old, dict) or not isinstance(new, dict):
            old, new = {part: old}, {part: new}
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                found.append(f"{name} is {old.get(name, 'not set')} there and {new.get(name, 'not set')} here")
    return "; ".join(found)


def _number_kind(name: str) -> type[int] | type[float]:
    kinds = typing.get_args(ALL_SETTINGS[name].kind) or (ALL_SETTINGS[name].kind,) if name in ALL_SETTINGS else ()
    for kind in (float, int):
        if kind in kinds and typing.get_origin(ALL_SETTINGS[name].kind) is not tuple:
            return kind
    raise UserError(f"--range {name}: it is not a number; --choice {name}=v1,v2 lists its values")


def _checked(name: str, axis: Range) -> Range:
    kind = _number_kind(name)
    axis = Range(kind(axis.low), kind(axis.high), axis.log)
    if not axis.low < axis.high:
        raise UserError(f"--range {name} takes the lower end first, got {axis}")
    if axis.log and axis.low <= 0:
        raise UserError(f"--range {name}: with log its lower end must be above 0, got {axis}")
    return axis
