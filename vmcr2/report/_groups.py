"""Groups runs that differ only in their seed, and gives every run and group a name."""

from __future__ import annotations

import json
from typing import NamedTuple

from .._shared import shown
from ._read import RunRecord

_MANY = 8


class Group(NamedTuple):
    """Runs of one configuration over seeds."""

    label: str
    runs: list[int]
    """indices into the list of runs"""


def group_runs(runs: list[RunRecord]) -> list[Group]:
    """Groups in the order of their first run. A label is the recipe's name and, if needed, the settings that differ."""
    members: dict[str, list[int]] = {}
    for index, run in enumerate(runs):
        members.setdefault(_identity(run), []).append(index)
    firsts = [runs[indices[0]] for indices in members.values()]
    return [Group(_label(runs[indices[0]], firsts), indices) for indices in members.values()]


def run_labels(runs: list[RunRecord], groups: list[Group]) -> list[str]:
    """The group's label; with the seed if the group has several runs, and with the folder if seeds repeat."""
    labels = [""] * len(runs)
    for group in groups:
        seeds = [runs[i].config.get("seed") for i in group.runs]
        for i in group.runs:
            labels[i] = group.label
            if len(group.runs) > 1:
                labels[i] += f", seed {runs[i].config.get('seed')}"
            if seeds.count(runs[i].config.get("seed")) > 1:
                labels[i] += f" ({runs[i].path.name})"
    return labels


def run_styles(runs: list[RunRecord], groups: list[Group]) -> list[int]:
    """One style (colour and dashes) per group; one per run if there is a single group of a few runs."""
    if len(groups) == 1 and len(runs) <= _MANY:
        return list(range(len(runs)))
    styles = [0] * len(runs)
    for number, group in enumerate(groups):
        for i in group.runs:
            styles[i] = number
    return styles


def _identity(run: RunRecord) -> str:
    return json.dumps(run.deciding, sort_keys=True)


def _label(run: RunRecord, firsts: list[RunRecord]) -> str:
    namesakes = [other for other in firsts if other.recipe == run.recipe]
    if len(namesakes) == 1:
        return run.recipe
    differing = sorted(
        name for name, value in run.deciding.items() if any(other.deciding.get(name) != value for other in namesakes)
    )
    texts = [f"{name}={shown(run.deciding[name])}" for name in differing[:4]]
    return f"{run.recipe}, {', '.join(texts)}" + (", …" if len(differing) > 4 else "")
