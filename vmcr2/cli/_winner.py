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

    def elsewhere(self) -> list[str]:
        """Settings that the command names by options which are not settings' names."""
        return [name for name, given in (("data_path", self.data), ("label", self.label)) if given is not None]

    def config_of(self, objectives: list[str]) -> Callable[[list[str]], Config]:
        """Makes the configuration of a point from its ``key=value`` texts. ``objectives`` are those that vary."""

        def make(texts: list[str]) -> Config:
            chosen = _objective_of(texts)
            others = [text for text in texts if names_of([text]) != [OBJECTIVE]]
            changes = {name: value for name, value in self.options().items() if name != OBJECTIVE}
            objective = chosen or self.objective
            return find_config(self.recipe, objective, changes, [*self.acting_settings(chosen, objectives), *others])

        return make

    def acting_settings(self, objective: str | None, objectives: list[str]) -> list[str]:
        """The --set texts that act at a point."""
        return [text for text in self.settings if acts_with(names_of([text])[0], objective, objectives)]


def train_command(typed: Typed, point: Point, objectives: list[str]) -> str | None:
    """The `vmcr2 train` command of a point: what was typed, the point's own settings, and what else it needs.

    It is tried out: None if it would not train by the point's configuration. We know no such case.
    """
    objective = str(point.settings[OBJECTIVE]) if OBJECTIVE in point.settings else typed.objective
    chosen = objective if OBJECTIVE in point.settings else None
    given = [*typed.options(), *names_of(typed.acting_settings(chosen, objectives)), *point.settings]
    # a rule may derive others from those that are fixed: fix these too, until nothing else differs
    for _ in range(_ROUNDS):
        names = list(dict.fromkeys(["holdout", "seed", *given]))
        own = {name: point.config.flat()[name] for name in _OWN_OPTIONS if name in names}
        texts = [
            f"{name}={shown(point.config.flat()[name])}"
            for name in names
            if name not in (*_OWN_OPTIONS, *typed.elsewhere(), OBJECTIVE)
        ]
        try:
            found = find_config(typed.recipe, objective, given_changes(typed.data, label=typed.label, **own), texts)
        except UserError:
            return None
        acting = point.config.acting()
        missing = [name for name in acting if name != "recipe" and found.flat().get(name) != acting[name]]
        if not missing:
            return shlex.join(_words(typed, objective, own, texts))
        given += missing
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
