"""What a person has typed for a sweep, as configurations of its points, and as the `train` command of the best."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .._shared import shown
from ..runs import Config, UserError
from ..sweep import OBJECTIVE, Point, acts_with
from ._settings import find_config, given_changes, names_of

_OWN_OPTIONS = ("epochs", "holdout", "device", "seed")
_ROUNDS = 4
"""Settings that are fixed may change what a rule derives from them, but not for ever."""


class Typed(NamedTuple):
    """The options that `vmcr2 sweep` and `vmcr2 train` share."""

    recipe: str
    objective: str | None
    data: Path | None
    label: str | None
    epochs: int | None
    holdout: int | None
    device: str | None
    settings: list[str]

    def options(self) -> dict[str, Any]:
        """The settings that have an option of their own, if it was given."""
        given = given_changes(self.data, epochs=self.epochs, holdout=self.holdout, device=self.device, label=self.label)
        return given | ({OBJECTIVE: self.objective} if self.objective is not None else {})

    def config_of(self, objectives: list[str]) -> Callable[[list[str]], Config]:
        """Makes the configuration of a point from its ``key=value`` texts. ``objectives`` are those that vary."""

        def make(texts: list[str]) -> Config:
            chosen = _objective_of(texts)
            others = [text for text in texts if names_of([text]) != [OBJECTIVE]]
            changes = {name: value for name, value in self.options().items() if name != OBJECTIVE}
            objective = chosen or self.objective
            return find_config(self.recipe, objective, changes, [*self._acting(chosen, objectives), *others])

        return make

    def _acting(self, objective: str | None, objectives: list[str]) -> list[str]:
        """The --set texts that act at a point."""
        return [text for text in self.settings if acts_with(names_of([text])[0], objective, objectives)]


def train_command(typed: Typed, point: Point, objectives: list[str]) -> str | None:
    """The `vmcr2 train` command of a point: what was typed, the point's own settings, and what else it needs.

    None if there is none, which we do not know a case of.
    """
    objective = str(point.settings[OBJECTIVE]) if OBJECTIVE in point.settings else typed.objective
    own: dict[str, Any] = {name: getattr(typed, name) for name in ("epochs", "holdout", "device")}
    own = {name: value for name, value in own.items() if value is not None}
    flat = point.config.flat()
    own |= {name: flat[name] for name in _OWN_OPTIONS if name in own or name in ("holdout", "seed")}
    chosen = objective if OBJECTIVE in point.settings else None
    fixed = dict.fromkeys(names_of(typed._acting(chosen, objectives)))
    fixed |= dict.fromkeys(name for name in point.settings if name not in (OBJECTIVE, *_OWN_OPTIONS))
    for _ in range(_ROUNDS):
        own = {name: flat[name] for name in own}
        texts = [f"{name}={shown(flat[name])}" for name in fixed]
        try:
            found = find_config(typed.recipe, objective, given_changes(typed.data, label=typed.label, **own), texts)
        except UserError:
            return None
        missing = [name for name, value in point.config.acting().items() if found.flat().get(name) != value]
        if not missing:
            return shlex.join(_words(typed, objective, own, texts))
        own |= {name: flat[name] for name in missing if name in _OWN_OPTIONS}
        fixed |= dict.fromkeys(name for name in missing if name not in (*_OWN_OPTIONS, OBJECTIVE, "recipe"))
    return None


def _words(typed: Typed, objective: str | None, own: dict[str, Any], texts: list[str]) -> list[str]:
    words = ["vmcr2", "train", typed.recipe]
    where = {"--data": typed.data, "--label": typed.label, "--objective": objective}
    for option, value in {**where, **{f"--{name}": value for name, value in own.items()}}.items():
        if value is not None:
            words += [option, str(value)]
    for text in texts:
        words += ["--set", text]
    return words


def _objective_of(texts: list[str]) -> str | None:
    return next((text.partition("=")[2].strip() for text in texts if names_of([text]) == [OBJECTIVE]), None)
