"""The record that decides a run: in sections, documented, immutable, readable back, and firm with mistakes."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import re
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vmcr2._shared import Settings
from vmcr2.data import DataSettings, Pictures, Split, plain
from vmcr2.models import ModelSettings
from vmcr2.objectives import OBJECTIVES, CESettings, VMCR2Settings
from vmcr2.runs import ALL_SETTINGS, Config, UserError, deciding_settings, recipe
from vmcr2.runs._settings import RunSettings
from vmcr2.training import OptimSettings

NAMED = "one of vmcr2, mcr2, ce, ce+mcr2, ce+vmcr2"
SECTIONS: list[type[Settings]] = [DataSettings, ModelSettings, OptimSettings, RunSettings, *OBJECTIVES.values()]


def changed(changes: dict[str, Any], objective: str = "vmcr2") -> dict[str, Any]:
    """The flat settings of that objective with these in place of the defaults."""
    return Config().replace(objective=objective).flat() | changes


# ---- sections


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_setting_has_a_docstring_under_it(section: type[Settings]) -> None:
    tree = ast.parse(inspect.getsource(importlib.import_module(section.__module__)))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == section.__name__).body
    documented = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            assert isinstance(node.target, ast.Name)
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            documented[node.target.id] = str(said).strip()
    own = [name for name in documented if name in {field.name for field in dataclasses.fields(section)}]
    assert own or section is CESettings
    assert [name for name in own if not documented[name]] == []


def test_a_flat_name_is_one_setting_of_one_section() -> None:
    shared = [DataSettings, ModelSettings, OptimSettings, RunSettings]
    for kind in OBJECTIVES.values():
        names = [name for section in (*shared, kind) for name in section.known()]
        assert len(names) == len(set(names))
        assert not {"recipe", "objective"} & set(names)


def test_what_a_setting_acts_with_is_a_setting_and_takes_those_values() -> None:
    """A misspelt name in a rule would fail in the middle of a run."""
    for name, known in ALL_SETTINGS.items():
        for other, values in known.rule.only_with.items():
            for value in values:
                assert Config().with_settings([f"{other}={value}"]).flat()[other] == value, name
        if known.rule.unsets is not None:
            assert known.rule.unsets in ALL_SETTINGS, name


def test_settings_are_attributes_of_sections_and_flat_names_elsewhere() -> None:
    config = Config().replace(lr=0.3, dim=64, data="mnist", model="mnist-cnn", eps_sq=0.25, seed=4)
    assert (config.optim.lr, config.model.dim, config.data.name, config.model.name) == (0.3, 64, "mnist", "mnist-cnn")
    assert (config.objective.eps_sq, config.run.seed) == (0.25, 4)
    flat = config.flat()
    assert (flat["lr"], flat["dim"], flat["data"], flat["model"], flat["objective"]) == (
        *(0.3, 64, "mnist", "mnist-cnn"),
        "vmcr2",
    )
    assert Config.from_flat(flat) == config


def test_an_objective_brings_its_own_settings_and_no_others() -> None:
    config = Config().replace(objective="ce", lr=0.3)
    assert isinstance(config.objective, CESettings)
    assert "latch_every" not in config.flat()
    back = config.replace(objective="vmcr2")
    assert back.objective == VMCR2Settings()
    assert back.optim.lr == 0.3
    kept = Config().replace(latch_every=7).replace(objective="vmcr2", lr=0.2)
    assert kept.flat()["latch_every"] == 7  # the same objective is not another one


def test_it_cannot_be_changed_in_place() -> None:
    config = Config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.optim.lr = 3.0  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.optim = OptimSettings()  # type: ignore[misc]
    other = config.replace(lr=3.0)
    assert (config.optim.lr, other.optim.lr) == (0.1, 3.0)
    assert hash(config) != hash(other)  # nothing mutable inside


# ---- config.json


def test_the_json_reads_back_as_the_same() -> None:
    config = Config().replace(
        recipe="mine",
        data_path="/dätä/x",
        mean=(0.1, 0.25),
        std=(0.5, 1 / 3),
        hidden=(),
        mu=0.02,
        lr=1e-300,
        seed=2**40,
    )
    text = config.to_json()
    assert Config.from_json(text) == config
    assert json.loads(text)["weight"] is None
    assert json.loads(text)["std"] == [0.5, 1 / 3]
    assert text.endswith("\n")


@pytest.mark.parametrize(
    ("changes", "out", "within"),
    [
        ({}, {"crop_padding", "flip", "milestones", "dropout_until", "codes_trace", "memory"}, {"hidden", "nu_codes"}),
        ({"objective": "ce"}, {"weight", "latch_every", "memory"}, {"eps_sq", "lr"}),
        ({"model": "resnet18"}, {"hidden", "batch_norm"}, {"dim"}),
        ({"codes": "flat"}, {"nu_codes", "cap_codes_step"}, {"codes_trace"}),
        ({"optimizer": "adamw"}, {"momentum", "nesterov"}, {"weight_decay"}),
        ({"schedule": "step", "augmentation": "flip"}, {"crop_padding"}, {"milestones", "flip"}),
    ],
)
def test_the_json_has_the_settings_that_act(changes: dict[str, Any], out: set[str], within: set[str]) -> None:
    config = Config().replace(**changes)
    found = json.loads(config.to_json())
    assert not out & set(found)
    assert within | {"recipe", "objective", "seed", "epochs"} <= set(found)
    assert set(found) == set(config.acting())
    assert Config.from_json(config.to_json()) == config


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"learning": 1}', '{"lr": "fast"}', '{"epochs": null}'])
def test_a_json_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"^config\.json cannot be used: "):
        Config.from_json(text)


def test_a_json_with_a_bad_value_is_refused() -> None:
    with pytest.raises(UserError, match="epochs must be at least 1"):
        Config.from_json(Config().to_json().replace('"epochs": 100', '"epochs": 0'))


# ---- texts


SETTINGS: list[tuple[str, str, Any]] = [
    ("debias", "true", True),
    ("debias", "YES", True),
    ("debias", "1", True),
    ("nesterov", "false", False),
    ("batch_norm", "no", False),
    ("batch_norm", "0", False),
    ("epochs", "17", 17),
    ("epochs", " 17 ", 17),
    ("lr", "1e-3", 1e-3),
    ("lr", "2", 2.0),
    ("mu", "none", None),
    ("mu", "None", None),
    ("mu", "null", None),
    ("mu", "", None),
    ("weight", "0.25", 0.25),
    ("data_path", "none", None),
    ("data_path", "/a=b", "/a=b"),  # only the first = divides
    ("mean", "", ()),
    ("hidden", "64", (64,)),
    ("hidden", " 64 , 32 ", (64, 32)),
    ("hidden", "64,32,16", (64, 32, 16)),
    ("hidden", "", ()),
    ("schedule", "cosine", "cosine"),
    ("augmentation", "resized-crop", "resized-crop"),
    ("model", "resnet18", "resnet18"),
]


@pytest.mark.parametrize(("name", "text", "value"), SETTINGS)
def test_a_setting_is_read_by_its_type(name: str, text: str, value: Any) -> None:
    config = Config().with_settings([f"{name}={text}"])
    found = config.flat()[name]
    assert found == value
    assert type(found) is type(value)
    assert config.flat() == changed({name: value})  # and nothing else moved


def test_every_type_of_setting_is_among_those_above() -> None:
    def kind(annotation: Any) -> str:
        return str(annotation if typing.get_origin(annotation) is not typing.Literal else "literal")

    tried = {kind(ALL_SETTINGS[name].kind) for name, _, _ in SETTINGS}
    assert {kind(known.kind) for known in ALL_SETTINGS.values()} == tried


def test_the_later_setting_wins() -> None:
    assert Config().with_settings(["lr=1", "epochs=3", "lr=2"]).optim.lr == 2.0


def test_settings_are_read_together() -> None:
    """What acts only with another setting may be given before it."""
    config = Config().with_settings(["milestones=0.25,0.5", "schedule=step", "crop_padding=2", "augmentation=crop"])
    assert config.optim.milestones == (0.25, 0.5)
    assert config.data.crop_padding == 2


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("debias", "perhaps", "true or false"),
        ("epochs", "1.5", "a whole number"),
        ("epochs", "", "a whole number"),
        ("lr", "fast", "a number"),
        ("lr", "none", "a number"),
        ("mu", "much", "a number or none"),
        ("hidden", "64;32", "whole numbers with commas"),
        ("hidden", "64,3.5", "whole numbers with commas"),
        ("milestones", "0.5,half", "numbers with commas"),
        ("objective", "mse", NAMED),
        ("codes", "Free", "one of free, flat"),
    ],
)
def test_a_bad_value_names_the_key_and_what_it_takes(name: str, value: str, wanted: str) -> None:
    with pytest.raises(UserError) as caught:
        Config().with_settings([f"{name}={value}"])
    message = str(caught.value)
    assert message.startswith(f"{name} takes ")
    assert message.endswith(f"{wanted}, got {value!r}")


@pytest.mark.parametrize("text", ["lr", "", "lr:3"])
def test_a_setting_without_equals_is_told_the_form(text: str) -> None:
    with pytest.raises(UserError, match=f"^--set takes key=value, got '{text}'$"):
        Config().with_settings([text])


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("epoch", "epochs"),
        ("momentun", "momentum"),
        ("batchsize", "batch_size"),
        ("learning_rate", "lr"),
        ("beta", "batch_expansion"),
        ("xyzzy", None),
    ],
)
def test_a_bad_key_offers_the_nearest(name: str, near: str | None) -> None:
    for attempt in (lambda: Config().with_settings([f"{name}=1"]), lambda: Config().replace(**{name: 1})):
        with pytest.raises(UserError, match=f"there is no setting '{name}'") as caught:
            attempt()
        assert ("did you mean" in str(caught.value)) == (near is not None)
        if near is not None:
            assert f"did you mean {near}" in str(caught.value)
        assert "\n" not in str(caught.value)


# ---- what holds between settings


def test_setting_mu_unsets_weight_and_the_other_way() -> None:
    def penalty(config: Config) -> tuple[Any, Any]:
        return config.flat()["mu"], config.flat()["weight"]

    start = Config()
    assert penalty(start) == (None, 20.0)
    by_mu = start.replace(mu=0.5)
    assert penalty(by_mu) == (0.5, None)
    assert penalty(by_mu.with_settings(["weight=7"])) == (None, 7.0)
    assert penalty(start.with_settings(["weight=none", "mu=1"])) == (1.0, None)
    assert penalty(start.replace(lr=1.0)) == (None, 20.0)


@pytest.mark.parametrize("changes", [{"mu": 1.0, "weight": 2.0}, {"mu": None, "weight": None}, {"weight": None}])
def test_vmcr2_takes_exactly_one_of_mu_and_weight(changes: dict[str, float | None]) -> None:
    with pytest.raises(UserError, match="mu or weight"):
        Config().replace(**changes)
    with pytest.raises(UserError, match="mu or weight"):
        VMCR2Settings(**{"mu": None, "weight": 20.0} | changes)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="mu or weight"):
        Config().with_settings([f"{name}={value}" for name, value in changes.items()])


@pytest.mark.parametrize("name", ["eps_sq", "loss_scale", "lr", "mu", "weight", "dim", "atoms_per_class"])
@pytest.mark.parametrize("bad", [0, -1])
def test_what_must_be_above_zero(name: str, bad: int) -> None:
    with pytest.raises(UserError, match=f"^{name} must be"):
        Config().replace(**{name: bad})


@pytest.mark.parametrize("name", ["latch_every", "epochs", "batch_size", "image_size"])
def test_what_must_be_at_least_one(name: str) -> None:
    with pytest.raises(UserError, match=f"^{name} must be at least 1, got 0"):
        Config().replace(**{name: 0})
    assert Config().replace(**{name: 1}).flat()[name] == 1


@pytest.mark.parametrize(
    "name",
    [
        *("batch_expansion", "nu_dictionary", "nu_codes", "momentum", "weight_decay", "warmup_epochs", "average"),
        *("checkpoint_seconds", "holdout", "eval_every", "log_every", "seed", "components"),
    ],
)
def test_what_may_be_zero_but_not_below(name: str) -> None:
    with pytest.raises(UserError, match=f"^{name} must be at least 0"):
        Config().replace(**{name: -1})
    assert Config().replace(**{name: 0}).flat()[name] == 0


@pytest.mark.parametrize("name", [name for name, known in ALL_SETTINGS.items() if known.kind in (float, float | None)])
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_no_number_is_infinite_or_none_at_all(name: str, bad: str) -> None:
    config = next(made for kind in OBJECTIVES if name in (made := Config().replace(objective=kind)).flat())
    with pytest.raises(UserError, match=f"^{name} must be"):
        config.with_settings([f"{name}={bad}"])


@pytest.mark.parametrize(
    "settings", [["mean=0.5"], ["std=0.5"], ["mean=0.5,0.5", "std=1"], ["mean=0.5", "std=0"], ["mean=nan", "std=1"]]
)
def test_mean_and_std_go_together_and_can_be_divided_by(settings: list[str]) -> None:
    with pytest.raises(UserError, match=r"mean|std"):
        Config().with_settings(settings)


def test_a_class_has_at_most_as_many_components_as_there_are_dimensions() -> None:
    assert Config().replace(dim=16, components=16).run.components == 16
    with pytest.raises(UserError, match=r"^components must be at most dim 16, got 17$"):
        Config().replace(dim=16, components=17)


def test_a_memory_holds_a_batch() -> None:
    exact = Config().replace(objective="mcr2", batch_size=100)
    assert exact.replace(memory=100).flat()["memory"] == 100
    with pytest.raises(UserError, match="at least batch_size 100, got 99"):
        exact.replace(memory=99)
    with pytest.raises(UserError, match="at least batch_size 200, got 100"):
        exact.replace(memory=100).replace(batch_size=200)


@pytest.mark.parametrize("bad", ["nan", "-0.5", "1.5"])
def test_milestones_are_parts_of_the_run(bad: str) -> None:
    with pytest.raises(UserError, match="milestones"):
        Config().with_settings(["schedule=step", f"milestones={bad}"])


def test_momentum_of_one_and_more_never_forgets() -> None:
    with pytest.raises(UserError, match=r"^momentum must be below 1, got 1\.0$"):
        Config().replace(momentum=1.0)


def test_an_average_that_never_moves_is_none() -> None:
    assert Config().replace(average=0.999).optim.average == 0.999
    with pytest.raises(UserError, match=r"^average must be below 1, got 1\.0$"):
        Config().replace(average=1.0)


def test_nesterov_needs_momentum() -> None:
    with pytest.raises(UserError, match="nesterov needs momentum"):
        Config().replace(nesterov=True, momentum=0.0)


def test_a_seed_that_no_generator_takes_is_a_users_mistake() -> None:
    seed = Config().replace(seed=2**63 - 1).run.seed
    assert torch.Generator().manual_seed(seed).initial_seed() == 2**63 - 1
    with pytest.raises(UserError, match="seed must be below"):
        Config().replace(seed=2**64)


@pytest.mark.parametrize("name", ["objective", "augmentation", "codes", "latch_unit", "optimizer", "schedule"])
def test_a_choice_outside_the_list_is_refused_in_python_too(name: str) -> None:
    with pytest.raises(UserError, match=f"^{name} takes one of "):
        Config().replace(**{name: "other"})


@pytest.mark.parametrize("augmentation", ["none", "flip"])
def test_flip_false_means_no_mirroring(augmentation: Any) -> None:
    """«Whether the augmentation mirrors every other image.»"""
    images = torch.randint(0, 256, (64, 1, 8, 8), dtype=torch.uint8)
    index, draw = torch.arange(64), torch.zeros((), dtype=torch.int64)
    settings = DataSettings(augmentation=augmentation, flip=False, image_size=8)
    split = Split(images, torch.zeros(64, dtype=torch.int64))
    pictures = Pictures(split, settings, seed=0, device=torch.device("cpu"))
    assert torch.equal(pictures.training_batch(index, draw), plain(images, index, size=8))


# ---- values from Python


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("hidden", [32, 16], (32, 16)),
        ("hidden", [np.int64(32), 16.0], (32, 16)),
        ("mean", [0.5, 1], (0.5, 1.0)),
        ("epochs", 2.0, 2),
        ("components", np.float32(2.0), 2),
        ("seed", np.int64(7), 7),
        ("seed", 2**60 + 1, 2**60 + 1),  # which no float is
        ("lr", 1, 1.0),
        ("lr", np.float64(0.25), 0.25),
        ("weight", 10, 10.0),
        ("debias", np.bool_(True), True),
        ("mu", None, None),
        ("data_path", Path("/data"), "/data"),
    ],
)
def test_a_value_from_python_takes_the_type_of_its_setting(name: str, given: Any, value: Any) -> None:
    """Equal settings are equal configurations, with one text and one identity in a sweep."""
    std = {"std": (1, 1)} if name == "mean" else {}
    config = Config().replace(**{name: given}, **std)
    found = config.flat()[name]
    assert found == value
    assert type(found) is type(value)
    assert config.to_json() == Config().replace(**{name: value}, **std).to_json()
    assert Config.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("epochs", 2.5, "a whole number, got 2.5"),
        ("epochs", "2", "a whole number, got '2'"),
        ("epochs", True, "a whole number, got True"),
        ("epochs", float("inf"), "a whole number, got inf"),
        ("components", None, "a whole number, got None"),
        ("lr", "0.1", "a number, got '0.1'"),
        ("lr", False, "a number, got False"),
        ("lr", 10**400, "a number, got 1000"),
        ("weight", [10.0], "a number or none, got [10.0]"),
        ("hidden", 32, "whole numbers with commas, got 32"),
        ("hidden", "32", "whole numbers with commas, got '32'"),
        ("hidden", [32.5], "whole numbers with commas, got [32.5]"),
        ("debias", 1, "true or false, got 1"),
        ("model", None, "a text, got None"),
        ("schedule", 3, "one of constant, step, cosine, linear, got 3"),
        ("schedule", ["step"], "one of constant, step, cosine, linear, got ['step']"),
    ],
)
def test_a_value_from_python_of_another_type_is_a_users_mistake(name: str, given: Any, wanted: str) -> None:
    with pytest.raises(UserError) as caught:
        recipe("digits", **{name: given})
    assert str(caught.value).startswith(f"{name} takes {wanted}")


# ---- what cannot act cannot be set


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_setting_of_another_objective_is_refused(objective: str) -> None:
    config = recipe("digits", objective=objective)
    own = set(config.flat())
    for name in set(ALL_SETTINGS) - own:
        owners = " or ".join(kind for kind, settings in OBJECTIVES.items() if name in settings.known())
        value = ALL_SETTINGS[name].default
        wanted = f"{name} acts with {owners} only, and the objective is {objective}: leave it out"
        for attempt in (
            lambda name=name, value=value: config.replace(**{name: value}),
            lambda name=name, value=value: config.with_settings([f"{name}={value}"]),
            lambda name=name, value=value: recipe("digits", objective=objective, **{name: value}),
        ):
            with pytest.raises(UserError) as caught:
                attempt()
            assert str(caught.value) == wanted


IDLE: list[tuple[dict[str, Any], str, Any, str]] = [
    ({"model": "resnet18"}, "hidden", (64,), "model mlp only, and model is resnet18"),
    ({"model": "resnet18"}, "batch_norm", False, "model mlp only, and model is resnet18"),
    ({}, "dropout_until", 0.5, "model mnist-cnn only, and model is mlp"),
    ({"schedule": "linear"}, "milestones", (0.1,), "schedule step only, and schedule is linear"),
    ({"augmentation": "flip"}, "crop_padding", 2, "augmentation crop only, and augmentation is flip"),
    ({"augmentation": "none"}, "flip", False, "augmentation crop or flip or resized-crop only, and augmentation is"),
    ({"codes": "free"}, "codes_trace", 2.0, "codes flat only, and codes is free"),
    ({"codes": "flat"}, "nu_codes", 1.0, "codes free only, and codes is flat"),
    ({"codes": "flat"}, "cap_codes_step", False, "codes free only, and codes is flat"),
    ({"optimizer": "adamw"}, "momentum", 0.5, "optimizer sgd only, and optimizer is adamw"),
]


@pytest.mark.parametrize(("setup", "name", "value", "wanted"), IDLE)
def test_a_setting_that_cannot_act_is_refused(setup: dict[str, Any], name: str, value: Any, wanted: str) -> None:
    config = Config().replace(**setup)
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    for attempt in (
        lambda: config.replace(**{name: value}),
        lambda: Config().replace(**setup, **{name: value}),
        lambda: recipe("digits", **setup, **{name: value}),
        lambda: config.with_settings([f"{name}={text}"]),
    ):
        with pytest.raises(UserError) as caught:
            attempt()
        assert str(caught.value).startswith(f"{name} acts with {wanted}")
        assert str(caught.value).endswith(": leave it out")


def test_a_value_that_stays_is_no_mistake() -> None:
    """Code may hand on a whole configuration; --set says what a person wants."""
    config = Config().replace(augmentation="crop", crop_padding=3)
    plain_one = config.replace(augmentation="none")
    assert plain_one.replace(crop_padding=3) == plain_one
    with pytest.raises(UserError, match="crop_padding acts with augmentation crop only"):
        plain_one.with_settings(["crop_padding=3"])


def test_recipe_overrides_go_through_the_same_checks() -> None:
    config = recipe("digits", mu=0.5, epochs=3)
    assert (config.flat()["mu"], config.flat()["weight"], config.optim.epochs) == (0.5, None, 3)
    with pytest.raises(UserError, match="did you mean epochs"):
        recipe("digits", epoch=3)
    with pytest.raises(UserError, match="epochs must be at least 1"):
        recipe("digits", epochs=0)


def test_an_objective_may_be_set_with_its_own_settings() -> None:
    config = Config().with_settings(["objective=mcr2", "memory=2000"])
    assert config.flat()["memory"] == 2000
    with pytest.raises(UserError, match=re.escape(f"objective takes {NAMED}, got ['ce']")):
        Config().replace(objective=["ce"])


def test_a_section_is_no_single_setting() -> None:
    with pytest.raises(UserError, match=r"objective takes a ObjectiveSettings; for single settings: Config"):
        Config(objective="ce")  # type: ignore[arg-type]


def test_what_cannot_be_set_from_a_text() -> None:
    with pytest.raises(UserError, match="recipe cannot be set"):
        recipe("digits").with_settings(["recipe=cifar100-vmcr2"])
    with pytest.raises(UserError, match=r"codes=simplex was removed in vmcr2 0\.2\.0 .*: take one of free, flat"):
        recipe("digits").with_settings(["codes=simplex"])


def test_settings_that_cannot_be_read_stay_apart_from_the_others() -> None:
    flat = json.loads(recipe("digits").to_json())
    found = deciding_settings(flat | {"made_up": [1, 2]})
    assert found == recipe("digits").deciding(seed=False) | {"made_up": (1, 2)}
