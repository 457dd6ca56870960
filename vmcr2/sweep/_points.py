"""The points of a sweep: each has a configuration, the settings that name it, and a lasting identity."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._shared import shown
from ..data import DATASETS, DataSettings, open_settings
from ..runs import ALL_SETTINGS, RECIPES, Config, UserError, check_setting
from ._objective_axis import OBJECTIVE, acts_with, with_objective

_LARGE = 25_000
_LARGE_HOLDOUT = 5000


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    config: Config
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Its values along the grid's axes, without the seed. They give the point its name."""

    @property
    def id(self) -> str:
        """16 hex digits of the settings that decide the result. Those at their default are left out: so a setting that
        a later version adds does not change the identity of old results."""
        return _digest(self.config.deciding())

    @property
    def group(self) -> str:
        """The identity without the seed. Points of one group are averaged."""
        return _digest(self.config.deciding(seed=False))

    @property
    def label(self) -> str:
        """«lr=0.1 weight=20 seed=0»."""
        return called({**self.settings, "seed": self.config.run.seed})

    @property
    def folder_name(self) -> str:
        """The label, made safe for a file system, and the identity: one folder per point, whatever its label."""
        readable = re.sub(r"[^\w.=,+-]", "_", self.label.replace(" ", ","), flags=re.ASCII)
        return f"{readable[:100]}-{self.id[:8]}"


def read_axes(texts: Sequence[str], option: str = "--grid") -> dict[str, list[str]]:
    """The axes of ``key=v1,v2`` texts; values that contain commas are separated by semicolons.

    >>> read_axes(["lr=0.1,0.3", "hidden=256,256;512"])
    {'lr': ['0.1', '0.3'], 'hidden': ['256,256', '512']}
    """
    axes: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals:
            raise UserError(f"{option} takes key=v1,v2 with at least one value, got {text!r}")
        check_axis(name, option)
        if name in axes:
            raise UserError(f"{option} {name} is given twice: give all its values at once, {name}=v1,v2")
        whole = name in ALL_SETTINGS and typing.get_origin(ALL_SETTINGS[name].kind) is tuple  # commas belong to it
        parts = values.split(";" if whole or ";" in values else ",")
        axes[name] = [part.strip() for part in parts]
    return axes


def grid(
    base: Config, axes: Mapping[str, Sequence[Any]], config_of: Callable[[list[str]], Config] | None = None
) -> list[Point]:
    """Every combination of the axes' values, which may be texts. The last axis changes fastest.

    ``config_of`` makes a configuration of ``key=value`` texts; by default they are changes of ``base``. A recipe by the
    rule derives other values from them. ``objective`` may be an axis: each objective then has its own recipe, and
    settings that only others have are left out at its points. Without a hold-out, one is set: 5000 images of the large
    data sets, about a fifth of a small one.

    >>> from vmcr2.runs import recipe
    >>> points = grid(recipe("digits"), {"lr": [0.1, 0.3], "seed": [0, 1]})
    >>> [point.label for point in points], points[0].config.data.holdout
    (['lr=0.1 seed=0', 'lr=0.1 seed=1', 'lr=0.3 seed=0', 'lr=0.3 seed=1'], 287)
    """
    for name in axes:
        check_axis(name)
    objectives = list(map(str, axes.get(OBJECTIVE, ())))
    points: dict[str, Point] = {}
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        # what this point's objective does not have is left out, and points that become the same are one
        chosen = {name: v for name, v in chosen.items() if acts_with(name, chosen.get(OBJECTIVE), objectives)}
        try:
            config = _configured(base, chosen, config_of)
        except UserError as error:
            raise UserError(f"{error} (the grid's point {called(chosen)})") from error
        point = point_of(config, chosen)
        points.setdefault(point.id, point)  # a value given twice is one point
    return list(points.values())


def _configured(base: Config, chosen: Mapping[str, Any], config_of: Callable[[list[str]], Config] | None) -> Config:
    texts = {name: value for name, value in chosen.items() if isinstance(value, str)}
    others = {name: value for name, value in chosen.items() if name not in texts}
    if config_of is not None and not others:
        return config_of([f"{name}={value}" for name, value in texts.items()])
    own = with_objective(base, texts.pop(OBJECTIVE, base.objective.name))
    return own.with_settings([f"{name}={value}" for name, value in texts.items()], **others)


def point_of(config: Config, axes: Iterable[str]) -> Point:
    """The point of a configuration, with a hold-out: its values along the axes name it."""
    if config.data.holdout == 0 and "holdout" not in axes and not config.data.validation:
        config = config.replace(holdout=default_holdout(config.data))
    flat = config.flat()
    return Point(config, {name: flat[name] for name in axes if name != "seed"})


def called(chosen: Mapping[str, Any]) -> str:
    """Values for a sentence: «lr=0.1 weight=20»."""
    return " ".join(f"{name}={shown(value)}" for name, value in chosen.items())


def default_holdout(data: DataSettings) -> int:
    """How many training images to set aside."""
    if data.name in DATASETS:
        size = DATASETS[data.name].train_size
    elif data.path is not None:
        size = _own_size(data)
    else:
        size = _LARGE  # opening what is not known will say what is wrong
    return _LARGE_HOLDOUT if size >= _LARGE else max(1, size // 5)


@functools.cache  # every point of a grid asks
def _own_size(data: DataSettings) -> int:
    return len(open_settings(data).train_labels)


def changes(config: Config) -> dict[str, Any]:
    """What differs from the recipe, or from the defaults if there is no recipe; without the seed."""
    plain = Config().replace(objective=config.objective.name)
    before = (RECIPES[config.recipe]().config if config.recipe in RECIPES else plain).flat()
    return {name: value for name, value in config.deciding(seed=False).items() if value != before.get(name)}


def check_axis(name: str, option: str = "--grid") -> None:
    """A setting that does not exist, or does not change the result, is a :class:`UserError`."""
    try:
        check_setting(name)
    except UserError as error:
        raise UserError(f"{option}: {error}") from error
    if name == "recipe" or (name in ALL_SETTINGS and not ALL_SETTINGS[name].rule.decides):
        raise UserError(f"{option} cannot vary {name}: it does not change the result")


def _digest(decides: dict[str, Any]) -> str:
    usual = {name: known.default for name, known in ALL_SETTINGS.items()} | {"objective": Config().objective.name}
    unusual = {name: value for name, value in sorted(decides.items()) if value != usual[name]}
    return hashlib.sha256(json.dumps(unusual).encode()).hexdigest()[:16]
