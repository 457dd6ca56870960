"""Everything that decides a run, in sections: data, model, objective, optim, run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._shared import Known, Rule, Settings, UserError, described, did_you_mean, parse
from ..data import OWN, ROWS, DataSettings
from ..models import ModelSettings
from ..objectives import OBJECTIVES, ObjectiveSettings, VMCR2Settings
from ..training import OptimSettings
from ._records import unsealed
from ._retired import RETIRED, RETIRED_VALUES, removed_in
from ._settings import RunSettings

_SECTIONS: dict[str, type[Settings]] = {
    "data": DataSettings,
    "model": ModelSettings,
    "optim": OptimSettings,
    "run": RunSettings,
}
_UNSAID = {"decay_all": True, "calibration_share": 0.0}
"""What settings were before they had a name: earlier versions decayed every parameter, and set nothing aside."""
_ALSO_CALLED = {
    **{"learning_rate": "lr", "rate": "lr", "wd": "weight_decay", "decay": "weight_decay", "batch": "batch_size"},
    **{"beta": "batch_expansion", "eps": "eps_sq", "epsilon": "eps_sq", "epsilon_sq": "eps_sq", "ema": "average"},
    **{"feature_dim": "dim", "d": "dim", "nu": "nu_dictionary", "scheduler": "schedule", "network": "model"},
}


@dataclass(frozen=True)
class Config:
    """One run.

    In Python a setting is in its section: ``config.optim.lr``, ``config.model.dim``, ``config.objective.eps_sq``.
    ``config.objective`` has the settings of the chosen objective and no others. Methods take and give flat names, as
    ``config.json`` and ``--set`` do.

    >>> config = Config().replace(lr=0.3, objective="ce")
    >>> config.optim.lr, config.objective.name, config.flat()["lr"]
    (0.3, 'ce', 0.3)
    """

    recipe: str = ""
    """The recipe it came from; empty if there is none."""
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    objective: ObjectiveSettings = field(default_factory=VMCR2Settings)
    optim: OptimSettings = field(default_factory=OptimSettings)
    run: RunSettings = field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        if not isinstance(self.recipe, str):
            raise UserError(f"recipe takes a text, got {self.recipe!r}")
        for name, kind in {**_SECTIONS, "objective": ObjectiveSettings}.items():
            if not isinstance(getattr(self, name), kind):
                raise UserError(f"{name} takes a {kind.__name__}; for single settings: Config().replace({name}=…)")
        for problem in self.objective.contradictions_with(self.optim.batch_size):
            raise UserError(problem)
        if self.data.mix != "none" and not self.objective.takes_memberships:
            raise UserError(
                "a memory, and V-MCR² in blocks, need one class for each sample: "
                "set mix=none, soft_memory=true, memory=0 or block=false"
            )
        if self.data.mix == "none" and self.objective.expects_memberships:
            raise UserError("soft_memory is for mixed samples, and costs time: set mix, or soft_memory=false")
        if self.run.components > self.model.dim:
            raise UserError(f"components must be at most dim {self.model.dim}, got {self.run.components!r}")
        size, shift = self.data.image_size, self.run.average_shifts
        if shift and 2 * shift >= size and self.data.name not in ROWS:
            raise UserError(
                f"average_shifts must be at most {(size - 1) // 2} with image_size {size}, got {shift}: of a picture "
                "that is moved by half its size or more, at most a quarter is left in a corner"
            )

    @property
    def title(self) -> str:
        """The recipe; without one, and for people's own data, the data and the objective."""
        if self.recipe and self.data.name not in OWN:
            return self.recipe
        return f"{self.data.title}-{self.objective.name}"

    def flat(self) -> dict[str, Any]:
        """Every setting of this run by its flat name."""
        own = {"recipe": self.recipe, "objective": self.objective.name}
        return own | {
            name: value
            for section in (self.data, self.model, self.objective, self.optim, self.run)
            for name, value in section.flat().items()
        }

    def replace(self, **changes: Any) -> Config:
        """A copy with other values, by flat name. Another objective starts from its own defaults.

        A name that does not exist, and a new value that cannot act in this run, are a :class:`UserError`.
        """
        config, before = self._with(changes), self.flat()
        now = config.flat()
        config.check_acting([name for name in changes if name in now and now[name] != before.get(name)])
        return config

    def _with(self, changes: Mapping[str, Any]) -> Config:
        changes = dict(changes)
        chosen = self.objective
        if (named := changes.pop("objective", chosen.name)) != chosen.name:
            chosen = _settings_of(named)()
        known = _known(chosen)
        for name in changes:
            _check_name(name, known, chosen)
        for name, value in list(changes.items()):
            if value is not None and name in known and (other := known[name].rule.unsets):
                changes.setdefault(other, None)
        parts: dict[str, Any] = {"recipe": changes.pop("recipe", self.recipe)}
        for name, section in {**{name: getattr(self, name) for name in _SECTIONS}, "objective": chosen}.items():
            own = {one.attribute: changes[flat] for flat, one in section.known().items() if flat in changes}
            parts[name] = dataclasses.replace(section, **own)
        return Config(**parts)

    def with_settings(self, settings: list[str], **values: Any) -> Config:
        """The same with the settings of ``key=value`` texts, which must act in this run."""
        changes = values | read_settings(settings)
        if self.recipe and changes.get("objective", self.objective.name) != self.objective.name:
            raise UserError(
                f"the recipe {self.recipe} is for {self.objective.name}: choose another objective with --objective"
            )
        config = self._with(changes)
        config.check_acting(changes)
        return config

    def check_acting(self, names: Iterable[str]) -> None:
        """A setting that does nothing in this run is a :class:`UserError`."""
        flat, known = self.flat(), _known(self.objective)
        for name in names:
            if reason := _idle(name, flat, known):
                raise UserError(f"{name} {reason}: leave it out")

    def acting(self) -> dict[str, Any]:
        """The settings that do something in this run, by flat name."""
        flat, known = self.flat(), _known(self.objective)
        return {name: value for name, value in flat.items() if not _idle(name, flat, known)}

    def deciding(self, *, seed: bool = True) -> dict[str, Any]:
        """What decides the result, by flat name: runs that are equal here learn the same.

        Left out are settings that cannot act, the recipe's name, where and how fast the run is made, and how often it
        is measured. Runs that are equal without the ``seed`` are averaged.
        """
        known, acting = _known(self.objective), self.acting()
        left_out = {"recipe"} if seed else {"recipe", "seed"}
        return {
            name: value
            for name, value in acting.items()
            if name not in left_out and (name == "objective" or _decides(known[name].rule, acting))
        }

    def to_json(self) -> str:
        """The text of ``config.json``: the settings that act."""
        return json.dumps(self.acting(), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_flat(cls, flat: Mapping[str, Any]) -> Config:
        """A configuration from flat names, also from those of an earlier version.

        Settings that could not act in the run are left out, and so are retired ones at their default.
        """
        for problem in _unreadable(flat).values():
            raise UserError(problem)
        objective = _settings_of(flat.get("objective", VMCR2Settings.name))
        names = {*_known(objective), "recipe"}
        own = {name: value for name, value in flat.items() if name in names}
        return cls()._with(_UNSAID | {"objective": objective.name} | own)

    @classmethod
    def from_json(cls, text: str) -> Config:
        """A configuration from the text of ``config.json``."""
        try:
            flat = unsealed(json.loads(text))
            if flat is None:
                raise UserError("its checksum is not that of its content")
            return cls.from_flat(flat)
        except (TypeError, AttributeError, ValueError, RecursionError) as error:
            raise UserError(f"config.json cannot be used: {error}") from error


def read_settings(settings: list[str]) -> dict[str, Any]:
    """The values of ``key=value`` texts, by flat name."""
    found = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set takes key=value, got {text!r}")
        found[name] = _read(name, value)
    return found


def deciding_settings(flat: Mapping[str, Any]) -> dict[str, Any]:
    """:meth:`Config.deciding` without the seed, from the flat settings of any version's ``config.json``.

    If this version cannot read the settings, they are taken as they are.
    """
    try:
        others = {name: flat[name] for name in _unreadable(flat)}
        readable = {name: value for name, value in flat.items() if name not in others}
        as_read = {name: tuple(value) if isinstance(value, list) else value for name, value in others.items()}
        return Config.from_flat(readable).deciding(seed=False) | as_read
    except UserError:
        return dict(flat)


def _unreadable(flat: Mapping[str, Any]) -> dict[str, str]:
    """The settings that this version cannot read, by flat name, and why, in a sentence."""
    objective = _settings_of(flat.get("objective", VMCR2Settings.name))
    acting = {*_known(objective), *RETIRED}
    found = {}
    for name, value in flat.items():
        if name not in ALL_SETTINGS and name not in RETIRED and name not in ("recipe", "objective"):
            found[name] = f"it has {name}={value}, a setting that this vmcr2 does not know"
        elif name in acting and (version := removed_in(name, value, {"objective": objective.name, **flat})):
            found[name] = f"it has {name}={value}, which vmcr2 {version} removed: use the version in its manifest.json"
    return found


def _known(objective: ObjectiveSettings | type[ObjectiveSettings]) -> dict[str, Known]:
    """The settings of a run with that objective, by flat name."""
    found: dict[str, Known] = {}
    for section in (*_SECTIONS.values(), objective):
        found |= section.known()
    return found


ALL_SETTINGS: dict[str, Known] = {}
"""The settings of every objective, by flat name."""
for _kind in OBJECTIVES.values():
    ALL_SETTINGS |= _known(_kind)


def _settings_of(objective: Any) -> type[ObjectiveSettings]:
    if not isinstance(objective, str) or objective not in OBJECTIVES:
        raise UserError(f"objective takes one of {', '.join(OBJECTIVES)}, got {objective!r}")
    return OBJECTIVES[objective]


def check_setting(name: str) -> None:
    """A name that no objective has is a :class:`UserError`. It suggests a name, or says which version removed it."""
    if name in RETIRED:
        raise UserError(f"the setting {name} was removed in vmcr2 {RETIRED[name].version} (docs/tuning-log.md)")
    if name not in ALL_SETTINGS and name not in ("recipe", "objective"):
        names = [*ALL_SETTINGS, "objective"]
        raise UserError(f"there is no setting {name!r}{did_you_mean(name, names, also_called=_ALSO_CALLED)}")


def _check_name(name: str, known: Mapping[str, Known], objective: ObjectiveSettings) -> None:
    check_setting(name)
    if name not in known and (reason := _idle(name, {"objective": objective.name}, known)):
        raise UserError(f"{name} {reason}: leave it out")


def _idle(name: str, flat: Mapping[str, Any], known: Mapping[str, Known]) -> str:
    """Why a setting does nothing in a run; empty if it acts."""
    if name in ALL_SETTINGS and name not in known:
        owners = [kind for kind, settings in OBJECTIVES.items() if name in settings.known()]
        return f"acts with {' or '.join(owners)} only, and the objective is {flat['objective']}"
    if name not in known:
        return ""
    for other, values in known[name].rule.only_with.items():
        if flat[other] not in values:
            return f"acts with {other} {' or '.join(map(str, values))} only, and {other} is {flat[other]}"
    for other, values in known[name].rule.idle_with.items():
        if flat[other] in values:
            return f"does nothing with {other} {flat[other]}"
    return ""


def _decides(rule: Rule, flat: Mapping[str, Any]) -> bool:
    return rule.decides or any(flat.get(other) in values for other, values in rule.decides_with.items())


def _read(name: str, text: str) -> Any:
    """A value from its text."""
    if name == "recipe":
        raise UserError("recipe cannot be set: name the recipe first, as in `vmcr2 train NAME`")
    check_setting(name)
    if name == "objective":
        return text.strip()
    kind = ALL_SETTINGS[name].kind
    if version := RETIRED_VALUES.get((name, text.strip())):
        raise UserError(
            f"{name}={text.strip()} was removed in vmcr2 {version} (docs/tuning-log.md): take {described(kind)}"
        )
    try:
        return parse(kind, text.strip())
    except ValueError:
        raise UserError(f"{name} takes {described(kind)}, got {text!r}") from None
