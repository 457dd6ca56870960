"""Settings on the command line: some have their own option, --set is for all others."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import typer

from ..data import Source
from ..runs import Config, UserError, find_recipe, read_settings, recipe_for

OBJECTIVE_HELP = (
    "vmcr2, mcr2, ce, ce+mcr2 or ce+vmcr2 (cross-entropy and a rate reduction), or auto: the rule chooses. "
    "By default the recipe's, or vmcr2."
)
Label = Annotated[str | None, typer.Option(metavar="COLUMN", help="A table's column with the classes.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
_SPELT = {"own": "its own option", "grid": "--grid", "search": "--range or --choice", "set": "--set"}


def find_config(recipe: str | Source, objective: str | None, changes: dict[str, Any], settings: list[str]) -> Config:
    """A recipe with the options and the --set texts that were given; a recipe by the rule follows them.

    Opened data are trained on by the rule.
    """
    given = read_settings(settings) | changes
    if isinstance(recipe, Source):
        for name in given.keys() & {"data", "data_path"}:
            raise UserError(f"{name} is set, but {recipe.title} is what to train on: leave --set {name} out")
        found = recipe_for(recipe, objective, given)
    else:
        found = find_recipe(recipe, objective, given)
    config = found.config.replace(**changes)
    config.check_acting(changes)  # also those that have a default's value
    return config.with_settings(settings)


def given_changes(data: Path | None, **options: Any) -> dict[str, Any]:
    """The changes by the options that were given. A path is made absolute: a run may be resumed from elsewhere."""
    changes = {name: value for name, value in options.items() if value is not None}
    changes |= {name: str(value.expanduser().resolve()) for name, value in changes.items() if isinstance(value, Path)}
    if data is not None:
        changes["data_path"] = str(data.expanduser().resolve())
    return changes


def refuse_twice(**options: Iterable[str]) -> None:
    """A setting given in two ways is a :class:`UserError`: nobody knows which value was meant."""
    for (one, some), (other, more) in combinations(options.items(), 2):
        for name in set(some) & set(more):
            raise UserError(f"{name} is set twice, by {_SPELT[one]} and by {_SPELT[other]}: leave one out")


def names_of(settings: list[str]) -> list[str]:
    """The names of the settings that --set sets."""
    return [setting.partition("=")[0].strip() for setting in settings]


def complain(message: str) -> None:
    """One line for the person, on stderr."""
    print(f"vmcr2: {' '.join(message.splitlines())}", file=sys.stderr)
