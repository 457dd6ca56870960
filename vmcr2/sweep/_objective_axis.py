"""The objective as an axis: each objective has a recipe of its own, and settings that others do not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..runs import ALL_SETTINGS, AUTO, RECIPES, Config, UserError

OBJECTIVE = "objective"


def acts_with(name: str, objective: str | None, objectives: Sequence[str]) -> bool:
    """Whether a point with this objective takes a setting. Where the objective does not vary, every setting is taken.

    A setting that none of the ``objectives`` has is taken too: so people are told that it does nothing.
    """
    return objective is None or _has(objective, name) or not any(_has(other, name) for other in objectives)


def _has(objective: str, name: str) -> bool:
    if objective == AUTO or name not in ALL_SETTINGS:
        return True
    return name in Config().replace(objective=objective).flat()


def with_objective(base: Config, objective: Any) -> Config:
    """The recipe of another objective, with the changes of ``base``. Those that it does not have are left out."""
    own = base.objective.name
    if objective == own:
        return base
    if not base.recipe:
        return base.replace(objective=objective)
    name = f"-{base.recipe}-".replace(f"-{own}-", f"-{objective}-")[1:-1]
    if base.recipe not in RECIPES or name not in RECIPES or name == base.recipe:
        raise UserError(
            f"there is no recipe like {base.recipe} for the objective {objective}: make a grid for each objective, and "
            "give sweep() the points of all"
        )
    usual, found = RECIPES[base.recipe]().config.flat(), RECIPES[name]().config
    own_names = found.flat()
    changed = {key: value for key, value in base.flat().items() if key not in usual or value != usual[key]}
    return found.replace(**{key: value for key, value in changed.items() if key in own_names and key != "recipe"})
