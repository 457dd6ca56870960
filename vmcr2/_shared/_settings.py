"""Settings as frozen dataclasses. A field says which values it takes, when it acts, and whether it decides a result.

A section of settings is in the package that uses it (``DataSettings`` in data, ``VMCR2Settings`` in objectives, …).
In Python a setting is an attribute of its section. Everywhere else (``config.json``, ``--set``, hashes) it has one flat
name, which is the attribute's unless :func:`setting` gives another.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ._errors import UserError
from ._kinds import convert, described


@dataclass(frozen=True)
class Rule:
    """The rule for a setting, besides its type."""

    name: str | None = None
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    only_with: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Flat names of other settings, and the values with which this one acts."""
    idle_with: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Flat names of other settings, and the values with which this one does nothing."""
    unsets: str | None = None
    """Flat name of another setting that this one replaces: the other becomes None."""
    decides: bool = True
    """Whether it can change what is learned. Where a run is made, how fast, and how often it is measured cannot."""
    decides_with: Mapping[str, Container[Any]] = field(default_factory=dict)
    """Flat names of other settings, and the values with which it does decide, though else it does not."""


_MOST = 1e300
"""No setting is larger; Python's whole numbers have no end, and cannot become floats above 1.8e308."""


class _AboveZero:
    """Every number above 0, as a container for a :class:`Rule`."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and value > 0


ABOVE_ZERO = _AboveZero()


def setting(default: Any, **rule: Any) -> Any:
    """A dataclass field with a :class:`Rule`."""
    return field(default=default, metadata={"rule": Rule(**rule)})


class Known(typing.NamedTuple):
    """A setting as its section declares it."""

    attribute: str
    kind: Any
    default: Any
    rule: Rule


@dataclass(frozen=True)
class Settings:
    """A section. Values are converted to their type and checked; a wrong one is a :class:`UserError`."""

    def __post_init__(self) -> None:
        for name, known in self.known().items():
            value = getattr(self, known.attribute)
            try:
                value = convert(known.kind, value)
            except (TypeError, ValueError, OverflowError):  # ValueError: NaN is no whole number
                raise UserError(f"{name} takes {described(known.kind)}, got {value!r}") from None
            object.__setattr__(self, known.attribute, value)  # frozen for everybody else
            _check_range(name, value, known.rule)
        for problem in self.contradictions():
            raise UserError(problem)

    def contradictions(self) -> Iterator[str]:
        """What is wrong between settings of this section, in sentences."""
        return iter(())

    def flat(self) -> dict[str, Any]:
        """Values by flat name."""
        return {name: getattr(self, known.attribute) for name, known in self.known().items()}

    @classmethod
    @functools.cache  # resolving type hints takes a millisecond, and a sweep asks thousands of times
    def known(cls) -> dict[str, Known]:
        """The section's settings by flat name."""
        kinds = typing.get_type_hints(cls)
        found = {}
        for own in dataclasses.fields(cls):
            rule = own.metadata.get("rule", Rule())
            found[rule.name or own.name] = Known(own.name, kinds[own.name], own.default, rule)
        return found


def _check_range(name: str, value: Any, rule: Rule) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        if isinstance(number, float) and not math.isfinite(number):
            raise UserError(f"{name} must be finite, got {value!r}")
        if abs(number) > _MOST:
            raise UserError(f"{name} must be below {_MOST:g}, got a number of {len(str(abs(number)))} digits")
        limits = (
            (rule.above, "above", number > (rule.above or 0.0)),
            (rule.at_least, "at least", number >= (rule.at_least or 0.0)),
            (rule.below, "below", rule.below is None or number < rule.below),
            (rule.at_most, "at most", rule.at_most is None or number <= rule.at_most),
        )
        for limit, words, holds in limits:
            if limit is not None and not holds:
                raise UserError(f"{name} must be {words} {limit:g}, got {value!r}")
