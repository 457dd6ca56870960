"""The recipes: for each row of the paper's tables the paper read literally, and the one to use.

Names are DATA[-dD][-preact]-OBJECTIVE[-paper]. Every value carries its origin: a section of the paper, or "ours". A
recipe to use is the rule (:mod:`._rule`) plus what a search has added. DATA-auto is the rule alone.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from .._shared import UserError, did_you_mean
from ..data import DataSettings, Source, describe, open_own
from ..objectives import OBJECTIVES
from ..training import choose_device
from ._config import ALL_SETTINGS, Config
from ._origins import Given, Values, ours, paper
from ._rule import facts_of, rule
from ._tuned_recipes import digits, tuned

AUTO = "auto"


class Recipe(NamedTuple):
    """A named configuration with the origin of every value that it sets."""

    config: Config
    origins: dict[str, str]
    title: str


def _setup(data: str, dim: int, variant: str) -> Values:
    """What all objectives of a data set share: network, data, batch size."""
    small = data in ("mnist", "cifar10")
    values: Values = {
        "data": paper(data, "§4"),
        "dim": paper(dim, "§4.1" if dim in (128, 500) else "Figure 1"),
        "eps_sq": paper(0.5, "§4.1"),
        "batch_size": paper(1000 if small else 2000, "§4.1"),
        "epochs": paper(2000, "§5, Table 2"),
        "atoms_per_class": paper(20 if small else 10, "§4.1"),
        "latch_every": paper(50, "§4.1"),
        "latch_unit": paper("epochs", "§4.1"),
        "nu_dictionary": paper(5.0, "§4.1"),
        "nu_codes": paper(5.0, "§4.1"),
        "image_size": paper(32, "appendix, architectures and transformations"),
        "model": paper("mnist-cnn" if data == "mnist" else "resnet18", "appendix, architecture 1 or 2"),
        "optimizer": paper("sgd", "§4.1"),
        "codes": paper("free", "Algorithm 1, line 9"),
        "components": paper(0, "§4.2: ⌊d/k⌋"),
        "mean": paper((), "appendix, transformations: ToTensor() alone"),
        "std": paper((), "appendix, transformations: ToTensor() alone"),
        "flip": paper(True, "appendix, transformations"),
        "momentum": ours(0.9),
        "weight_decay": ours(5e-4),
    }
    if data == "tiny-imagenet":
        values["augmentation"] = paper("flip", "appendix, transformations for Tiny ImageNet")
    else:
        values["augmentation"] = paper("crop", "appendix, transformations: RandomCrop(32, padding=8), flip")
        values["crop_padding"] = paper(8, "appendix, transformations")
    if variant == "preact":
        values |= _preact(data)
    return values


def _preact(data: str) -> Values:
    """Table 3: the recipe of Yun et al. (2020), which the appendix adopts."""
    cited = "the work cited by appendix «Additional Experiments»"
    values: Values = {
        "model": paper("preact18", "appendix, «Additional Experiments»"),
        "momentum": paper(0.9, "appendix, «Additional Experiments»"),
        "weight_decay": paper(1e-4, "appendix, «Additional Experiments»"),
        "schedule": paper("step", "appendix: ÷10 after 1/2 and 3/4"),
        "milestones": paper((0.5, 0.75), "appendix, «Additional Experiments»"),
        "flip": paper(True, cited),
    }
    if data == "tiny-imagenet":
        values["augmentation"] = paper("resized-crop", cited)
        values["mean"] = paper((0.485, 0.456, 0.406), cited)
        values["std"] = paper((0.229, 0.224, 0.225), cited)
    else:
        values["crop_padding"] = paper(4, cited)
        values["mean"] = paper((0.4914, 0.4822, 0.4465), cited)
        values["std"] = paper((0.2023, 0.1994, 0.2010), cited)
    return values


def _literal(objective: str, variant: str) -> Values:
    """What the paper says of an objective."""
    where = "§4.1"
    rate = {"vmcr2": 1e-3, "mcr2": 1e-3, "ce": 1e-2}[objective]
    values: Values = {"lr": paper(rate, "footnote of §5.3" if objective == "ce" else where)}
    if objective == "vmcr2":
        values["mu"] = paper(1.0, where)
        values["batch_expansion"] = paper(0.0, "Eq. 7")
        values["debias"] = paper(False, "Eq. 7")
        values["cap_codes_step"] = paper(False, "Algorithm 1, line 8")
    if variant == "preact":
        values["lr"] = paper(1e-1, "appendix, «Additional Experiments»")
        if objective == "vmcr2":
            values["mu"] = paper(1e-1, "appendix, «Additional Experiments»")
    return values


def _build(name: str, objective: str, values: Values, title: str) -> Recipe:
    """A recipe from values. Rows share values that only other objectives have: it takes those that act."""
    base = Config().replace(objective=objective)
    own = {key: given for key, given in values.items() if key in base.flat()}
    config = base._with({"recipe": name} | {key: given.value for key, given in own.items()})
    acting = config.acting()
    return Recipe(config, {key: given.origin for key, given in own.items() if key in acting}, title)


class _Row(NamedTuple):
    data: str
    dim: int
    variant: str
    objectives: tuple[str, ...]
    title: str

    @property
    def name(self) -> str:
        plain = {"mnist": 128, "cifar10": 128, "cifar100": 500, "tiny-imagenet": 500}[self.data]
        return "-".join(filter(None, [self.data, "" if self.dim == plain else f"d{self.dim}", self.variant]))


_ALL = ("vmcr2", "mcr2", "ce")
"""The objectives of the paper's tables."""
_BY_RULE = ("auto", *(name for name in OBJECTIVES if name not in _ALL))
"""What the paper does not have: the rule alone sets it."""
_RULED = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet")
_ROWS = [
    _Row("mnist", 128, "", _ALL, "MNIST, Table 2"),
    _Row("cifar10", 128, "", _ALL, "CIFAR-10, Table 2"),
    _Row("cifar100", 500, "", _ALL, "CIFAR-100, Table 2"),
    _Row("cifar100", 100, "", ("vmcr2", "mcr2"), "CIFAR-100 with d = 100, Figure 1"),
    _Row("tiny-imagenet", 500, "", _ALL, "Tiny ImageNet, Table 2"),
    _Row("tiny-imagenet", 200, "", ("vmcr2", "mcr2"), "Tiny ImageNet with d = 200, Figure 1"),
    _Row("cifar100", 500, "preact", ("vmcr2", "ce"), "CIFAR-100, PreAct ResNet-18, Table 3"),
    _Row("tiny-imagenet", 500, "preact", ("vmcr2", "ce"), "Tiny ImageNet, PreAct ResNet-18, Table 3"),
]


def _paper_row(row: _Row, objective: str, literal: bool) -> Recipe:
    name = f"{row.name}-{objective}" + ("-paper" if literal else "")
    values = _setup(row.data, row.dim, row.variant) | {"objective": Given(objective, "the row of the table")}
    values |= _literal(objective, row.variant)
    if row.data == "tiny-imagenet" and objective == "mcr2":
        values["epochs"] = paper({500: 200, 200: 500}[row.dim], "Figure 1: stopped there for its cost")
    if not literal:
        chosen = tuned(objective, row.data, row.dim, row.variant)
        if "weight" in chosen:
            values.pop("mu", None)
        values |= chosen
    else:
        values["decay_all"] = ours(True, "as torch's optimisers do")
        values["calibration_share"] = ours(0.0, "the paper trains on all training images")
    return _build(name, objective, values, row.title + (", as the paper says" if literal else ", to use"))


def _rule_row(data: str, objective: str, given: Mapping[str, Any] | None = None) -> Recipe:
    return _ruled(f"{data}-{objective}", describe(data).title, data, objective, given or {})


def _ruled(name: str, title: str, data: str | Source, objective: str, given: Mapping[str, Any]) -> Recipe:
    """The rule for a data set. Settings that a person gives come first, and the others follow from them."""
    if objective not in (AUTO, *OBJECTIVES):
        raise UserError(f"objective takes {AUTO}, {', '.join(OBJECTIVES)}, got {objective!r}")
    Config()._with({key: given[key] for key in _DERIVED_FROM if key in given})  # a bad value is said before it is used
    on_gpu = choose_device(given.get("device", "auto")).type == "cuda"
    fixed = {key: value for key, value in given.items() if key in ALL_SETTINGS}
    share = 0.0 if given.get("validation") else given.get("calibration_share", DataSettings().calibration_share)
    facts = facts_of(data, given.get("holdout", 0), calibration_share=share)
    values = rule(facts, objective, on_gpu=on_gpu, **fixed)
    values |= {"data": Given(data if isinstance(data, str) else data.name, "given"), "eps_sq": paper(0.5, "§4.1")}
    if isinstance(data, Source):
        if data.path is not None:
            values["data_path"] = Given(str(data.path), "given")
        values |= {key: Given(value, "given" if key in given else "the data") for key, value in data.settings.items()}
    return _build(name, values["objective"].value, values, f"{title}, by the rule alone")


def _digits_row(objective: str) -> Recipe:
    values = digits(objective) | {"objective": ours(objective)}
    return _build(f"digits-{objective}", objective, values, "scikit-learn's digits: the default of `make train`")


_DERIVED_FROM = ("holdout", "calibration_share", "device", "model", "image_size", "dim", "batch_size", "epochs")
"""Settings from which the rule derives others."""


_RULE_ROWS = {f"{data}-{objective}": partial(_rule_row, data, objective) for data in _RULED for objective in _BY_RULE}


def _table() -> dict[str, Callable[[], Recipe]]:
    table = {f"digits-{objective}": partial(_digits_row, objective) for objective in _ALL}
    for row in _ROWS:
        for objective, literal in itertools.product(row.objectives, (False, True)):
            name = f"{row.name}-{objective}" + ("-paper" if literal else "")
            table[name] = partial(_paper_row, row, objective, literal)
    return {**table, **_RULE_ROWS}


def default_origin(name: str) -> str:
    """The origin of a value that no recipe sets."""
    plain = name in ("holdout", "label_noise", "readout", "seed", "precision") or (
        name in ALL_SETTINGS and not ALL_SETTINGS[name].rule.decides
    )
    return "the trainer's default" if plain else "not given in the paper, ours: the default"


RECIPES = _table()
FAMILIES = tuple(dict.fromkeys((*_RULED, *(row.name for row in _ROWS))))
"""Names without an objective: they take one. By default it is V-MCR² where there is such a recipe, else the rule's."""


def find_recipe(name: str, objective: str | None = None, given: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of a full name, or of DATA alone with an objective. A contradiction is a :class:`UserError`.

    ``given`` are settings that a person has fixed: a recipe by the rule derives its other values from them.
    """
    if name in FAMILIES:
        usual = "vmcr2" if f"{name}-vmcr2" in RECIPES else AUTO
        full = f"{name}-{objective or usual}"
        if full not in RECIPES:
            offered = [o for o in (*OBJECTIVES, AUTO) if f"{name}-{o}" in RECIPES]
            raise UserError(f"there is no recipe of {name} for {objective}: choose {' or '.join(offered)}")
        return _made(full, given)
    if is_own_data(name):
        return recipe_for(open_own(name, given), objective, given)
    if name not in RECIPES:
        raise UserError(
            f"there is no recipe {name!r}{did_you_mean(name, [*RECIPES, *FAMILIES])} (`vmcr2 recipes` lists all), and "
            "no folder or file of that name"
        )
    found = _made(name, given)
    if objective not in (None, found.config.objective.name) and not name.endswith(f"-{objective}"):
        raise UserError(
            f"the recipe {name} is for {found.config.objective.name}, but --objective is {objective}: leave one out"
        )
    return found


def is_own_data(name: str) -> bool:
    """Whether a name means a person's own folder or file. A recipe's name comes first: then it is ``./NAME``."""
    if name in RECIPES or name in FAMILIES or name == AUTO:
        return False
    spelt_as_path = "/" in name or os.sep in name or name.startswith((".", "~"))
    return spelt_as_path or os.path.exists(name)


def recipe_for(source: Source, objective: str | None = None, given: Mapping[str, Any] | None = None) -> Recipe:
    """The rule for opened data. ``given`` are settings that a person has fixed."""
    return _ruled(AUTO, source.title or source.name, source, objective or AUTO, given or {})


def _made(name: str, given: Mapping[str, Any] | None) -> Recipe:
    return _RULE_ROWS[name](given) if name in _RULE_ROWS else RECIPES[name]()


def recipe_values(config: Config, source: Source) -> dict[str, Any] | None:
    """The acting settings of a configuration's recipe, without what a person has changed; None if it has none."""
    own = {name: config.flat()[name] for name in ("holdout", "calibration_share", "device")}
    if config.recipe in RECIPES:
        return find_recipe(config.recipe, given=own).config.acting()
    if config.recipe == AUTO:
        own |= {"validation": True} if config.data.validation else {}
        return recipe(AUTO, data=source, objective=config.objective.name, **own).acting()
    return None


def recipe(name: str, *, data: str | Path | Source | None = None, **overrides: Any) -> Config:
    """The configuration of a recipe, with other values where they are given.

    ``recipe("auto", data=…)`` is the rule for a data set: opened, by its name, or the path of a person's own folder of
    pictures or table. ``objective`` is then "auto" or one of the objectives. Other given values count: the rule derives
    the rest from them.

    >>> recipe("digits", epochs=5).optim.epochs
    5
    >>> recipe("auto", data="digits").objective.name
    'ce+mcr2'
    """
    objective = overrides.pop("objective", None)
    if name == AUTO:
        if data is None:
            raise UserError('the recipe auto needs data: recipe("auto", data=…), a name, a path or an opened data set')
        if not isinstance(data, Source) and (isinstance(data, Path) or is_own_data(data)):
            data = open_own(data, overrides)
        return _ruled(AUTO, AUTO, data, objective or AUTO, overrides).config.replace(**overrides)
    if not isinstance(data, str | None):
        raise UserError(
            f'only the recipe auto takes opened data: recipe("auto", data=…), or fit(recipe({name!r}), source=…)'
        )
    if data is not None:
        overrides["data"] = data
    return find_recipe(name, objective, overrides).config.replace(**overrides)
