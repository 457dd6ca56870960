"""The record that decides a run: documented, immutable, readable back, and firm with mistakes."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vmcr2.data import plain
from vmcr2.train import Config, UserError, recipe
from vmcr2.train import _config as module
from vmcr2.train._config import ACTS_WITH, FIELDS
from vmcr2.train._step import augmented


def test_every_field_has_a_docstring_under_it() -> None:
    tree = ast.parse(inspect.getsource(module))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Config").body
    documented = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            assert isinstance(node.target, ast.Name)
            said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
            documented[node.target.id] = str(said).strip()
    assert set(documented) == {field.name for field in dataclasses.fields(Config)} == set(FIELDS)
    assert [name for name, said in documented.items() if not said] == []


def test_it_cannot_be_changed_in_place() -> None:
    config = Config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.lr = 3.0  # type: ignore[misc]
    other = config.replace(lr=3.0)
    assert (config.lr, other.lr) == (0.1, 3.0)
    assert hash(config) != hash(other)  # nothing mutable inside


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
    assert set(json.loads(text)) == set(FIELDS)  # everything, not only what differs
    assert text.endswith("\n")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"learning": 1}', '{"lr": "fast"}', '{"epochs": null}'])
def test_a_json_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"config\.json is not one of this version"):
        Config.from_json(text)


def test_a_json_with_a_bad_value_is_refused() -> None:
    with pytest.raises(UserError, match="epochs must be at least 1"):
        Config.from_json(Config().to_json().replace('"epochs": 100', '"epochs": 0'))


SETTINGS: list[tuple[str, str, Any]] = [
    ("debias", "true", True),
    ("debias", "YES", True),
    ("debias", "1", True),
    ("flip", "false", False),
    ("flip", "no", False),
    ("flip", "0", False),
    ("epochs", "17", 17),
    ("epochs", " 17 ", 17),
    ("lr", "1e-3", 1e-3),
    ("lr", "2", 2.0),
    ("mu_end", "none", None),
    ("mu_end", "None", None),
    ("weight_end", "null", None),
    ("weight_end", "", None),
    ("weight_end", "0.25", 0.25),
    ("data_path", "none", None),
    ("data_path", "/a=b", "/a=b"),  # only the first = divides
    ("milestones", "0.25,0.5", (0.25, 0.5)),
    ("milestones", "0.25", (0.25,)),
    ("milestones", " 0.25 , 0.5 ", (0.25, 0.5)),
    ("hidden", "64,32,16", (64, 32, 16)),
    ("hidden", "", ()),
    ("objective", "ce", "ce"),
    ("schedule", "cosine", "cosine"),
    ("augmentation", "resized-crop", "resized-crop"),
    ("model", "resnet18", "resnet18"),
]


@pytest.mark.parametrize(("name", "text", "value"), SETTINGS)
def test_a_setting_is_read_by_its_type(name: str, text: str, value: Any) -> None:
    config = Config().with_settings([f"{name}={text}"])
    found = getattr(config, name)
    assert found == value
    assert type(found) is type(value)
    assert config == dataclasses.replace(Config(), **{name: value})  # and nothing else moved


def test_every_type_of_field_is_among_the_settings_above() -> None:
    def kind(annotation: Any) -> str:
        return str(annotation if typing.get_origin(annotation) is not typing.Literal else "literal")

    tried = {kind(FIELDS[name]) for name, _, _ in SETTINGS}
    assert {kind(annotation) for annotation in FIELDS.values()} == tried


def test_the_later_setting_wins() -> None:
    assert Config().with_settings(["lr=1", "epochs=3", "lr=2"]).lr == 2.0


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
        ("objective", "mse", "one of vmcr2, mcr2, ce"),
        ("codes", "Free", "one of free, simplex, rescaled, flat"),
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
    [("epoch", "epochs"), ("momentun", "momentum"), ("batchsize", "batch_size"), ("LR", None), ("xyzzy", None)],
)
def test_a_bad_key_offers_the_nearest(name: str, near: str | None) -> None:
    for attempt in (lambda: Config().with_settings([f"{name}=1"]), lambda: Config().replace(**{name: 1})):
        with pytest.raises(UserError, match=f"there is no setting '{name}'") as caught:
            attempt()
        if near is not None:
            assert f"did you mean {near}" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_setting_mu_unsets_weight_and_the_other_way() -> None:
    start = Config()
    assert (start.mu, start.weight) == (None, 20.0)
    by_mu = start.replace(mu=0.5)
    assert (by_mu.mu, by_mu.weight) == (0.5, None)
    again = by_mu.with_settings(["weight=7"])
    assert (again.mu, again.weight) == (None, 7.0)
    spelt_out = start.with_settings(["weight=none", "mu=1"])
    assert (spelt_out.mu, spelt_out.weight) == (1.0, None)
    assert start.replace(lr=1.0).weight == 20.0


@pytest.mark.parametrize("changes", [{"mu": 1.0, "weight": 2.0}, {"mu": None, "weight": None}, {"weight": None}])
def test_vmcr2_takes_exactly_one_of_mu_and_weight(changes: dict[str, float | None]) -> None:
    with pytest.raises(UserError, match="mu or weight"):
        Config().replace(**changes)
    with pytest.raises(UserError, match="mu or weight"):
        Config(**{"mu": None, "weight": 20.0} | changes)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="mu or weight"):
        Config().with_settings([f"{name}={value}" for name, value in changes.items()])
    assert Config().replace(objective="ce", **changes).objective == "ce"  # which has neither


@pytest.mark.parametrize(
    "name",
    ["eps_sq", "loss_scale", "lr", "decay_power", "mu", "weight", "mu_end", "weight_end", "dim", "atoms_per_class"],
)
@pytest.mark.parametrize("bad", [0, -1])
def test_what_must_be_above_zero(name: str, bad: int) -> None:
    with pytest.raises(UserError, match=f"^{name} must be"):
        Config().replace(**{name: bad})


@pytest.mark.parametrize("name", ["latch_every", "epochs", "batch_size", "image_size"])
def test_what_must_be_at_least_one(name: str) -> None:
    with pytest.raises(UserError, match=f"^{name} must be at least 1, got 0$"):
        Config().replace(**{name: 0})
    assert getattr(Config().replace(**{name: 1}), name) == 1


@pytest.mark.parametrize(
    "name",
    [
        "batch_expansion",
        "nu_dictionary",
        "nu_codes",
        "batch_expansion_end",
        "nu_dictionary_end",
        "nu_codes_end",
        "momentum",
        "weight_decay",
        "warmup_epochs",
        "average",
        "checkpoint_seconds",
        "holdout",
        "crop_padding",
        "memory",
        "eval_every",
        "seed",
    ],
)
def test_what_may_be_zero_but_not_below(name: str) -> None:
    with pytest.raises(UserError, match=f"^{name} must be at least 0"):
        Config().replace(**{name: -1})
    assert getattr(Config().replace(**{name: 0}), name) == 0


@pytest.mark.parametrize("name", [name for name, kind in FIELDS.items() if kind in (float, float | None)])
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_no_number_is_infinite_or_none_at_all(name: str, bad: str) -> None:
    with pytest.raises(UserError, match=f"^{name} must be"):
        Config().with_settings([f"{name}={bad}"])


@pytest.mark.parametrize(
    "settings",
    [
        ["mean=0.5"],
        ["std=0.5"],
        ["mean=0.5,0.5", "std=1"],
        ["mean=0.5", "std=0"],
        ["mean=nan", "std=1"],
    ],
)
def test_mean_and_std_go_together_and_can_be_divided_by(settings: list[str]) -> None:
    with pytest.raises(UserError, match=r"mean|std"):
        Config().with_settings(settings)


def test_a_class_has_at_most_as_many_components_as_there_are_dimensions() -> None:
    assert Config(dim=16, components=16).components == 16
    with pytest.raises(UserError, match=r"^components must be at most dim 16, got 17$"):
        Config(dim=16, components=17)
    with pytest.raises(UserError, match=r"^components must be at least 0, got -1$"):
        Config(components=-1)


def test_a_memory_is_of_exact_mcr2_and_holds_a_batch() -> None:
    exact = Config().replace(objective="mcr2", batch_size=100)
    assert exact.replace(memory=100).memory == 100
    with pytest.raises(UserError, match="at least batch_size 100, got 99"):
        exact.replace(memory=99)
    for objective in ("vmcr2", "ce"):
        with pytest.raises(UserError, match=f"^memory acts with mcr2 only, and the objective is {objective}: leave it"):
            Config().replace(objective=objective, memory=2000)


@pytest.mark.parametrize("bad", ["nan", "-0.5", "1.5"])
def test_milestones_are_parts_of_the_run(bad: str) -> None:
    with pytest.raises(UserError, match="milestones"):
        Config().with_settings(["schedule=step", f"milestones={bad}"])


def test_momentum_of_one_and_more_never_forgets() -> None:
    with pytest.raises(UserError, match="momentum"):
        Config().replace(momentum=1.0)


def test_an_average_that_never_moves_is_none() -> None:
    assert Config().replace(average=0.999).average == 0.999
    with pytest.raises(UserError, match=r"^average must be below 1, got 1\.0$"):
        Config().replace(average=1.0)


def test_nesterov_needs_momentum() -> None:
    with pytest.raises(UserError, match="nesterov needs momentum"):
        Config().replace(nesterov=True, momentum=0.0)


def test_a_seed_that_no_generator_takes_is_a_users_mistake() -> None:
    assert torch.Generator().manual_seed(Config().replace(seed=2**63 - 1).seed).initial_seed() == 2**63 - 1
    with pytest.raises(UserError, match="seed"):
        Config().replace(seed=2**64)


def test_an_end_without_its_start_is_not_passed_over_in_silence() -> None:
    """μ_end does nothing where the weight is what counts, and the other way round."""
    assert Config().replace(mu=0.02, mu_end=0.06).mu_end == 0.06
    with pytest.raises(UserError, match="mu_end"):
        Config().replace(mu_end=0.06)
    with pytest.raises(UserError, match="weight_end"):
        Config().replace(mu=1.0, weight_end=40.0)


@pytest.mark.parametrize("name", ["objective", "augmentation", "codes", "latch_unit", "optimizer", "schedule"])
def test_a_choice_outside_the_list_is_refused_in_python_too(name: str) -> None:
    with pytest.raises(UserError, match=f"^{name} takes one of "):
        Config().replace(**{name: "other"})


@pytest.mark.parametrize("augmentation", ["none", "flip"])
def test_flip_false_means_no_mirroring(augmentation: str) -> None:
    """«Whether the augmentation mirrors every other image.»"""
    images = torch.randint(0, 256, (64, 1, 8, 8), dtype=torch.uint8)
    index, draw = torch.arange(64), torch.zeros((), dtype=torch.int64)
    config = Config().replace(augmentation=augmentation, flip=False, image_size=8)
    assert torch.equal(augmented(config, images, index, draw), plain(images, index, size=8))


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("hidden", [32, 16], (32, 16)),
        ("hidden", [np.int64(32), 16.0], (32, 16)),
        ("milestones", [0.5, 1], (0.5, 1.0)),
        ("epochs", 2.0, 2),
        ("components", np.float32(2.0), 2),
        ("seed", np.int64(7), 7),
        ("seed", 2**60 + 1, 2**60 + 1),  # which no float is
        ("lr", 1, 1.0),
        ("lr", np.float64(0.25), 0.25),
        ("weight", 10, 10.0),
        ("debias", np.bool_(True), True),
        ("mu_end", None, None),
        ("data_path", Path("/data"), "/data"),
    ],
)
def test_a_value_from_python_takes_the_type_of_its_setting(name: str, given: Any, value: Any) -> None:
    """Equal settings are equal configurations, with one text and one identity in a sweep."""
    config = Config(**{name: given})
    found = getattr(config, name)
    assert found == value
    assert type(found) is type(value)
    assert config.to_json() == Config(**{name: value}).to_json()
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


@pytest.mark.parametrize("name", ACTS_WITH)
@pytest.mark.parametrize("objective", ["vmcr2", "mcr2", "ce"])
def test_a_setting_that_is_given_must_act(name: str, objective: str) -> None:
    config = recipe("digits", objective=objective)
    value = getattr(config, name)
    text = f"{name}={'none' if value is None else str(value)}"
    if ACTS_WITH[name] == objective:
        assert config.with_settings([text]) == config
        return
    with pytest.raises(UserError) as caught:
        config.with_settings([text])
    assert (
        str(caught.value) == f"{name} acts with {ACTS_WITH[name]} only, and the objective is {objective}: leave it out"
    )
    if name != "memory":
        assert getattr(config.replace(**{name: value}), name) == value  # code may share settings between objectives


def test_recipe_overrides_go_through_the_same_checks() -> None:
    config = recipe("digits", mu=0.5, epochs=3)
    assert (config.mu, config.weight, config.epochs) == (0.5, None, 3)
    with pytest.raises(UserError, match="did you mean epochs"):
        recipe("digits", epoch=3)
    with pytest.raises(UserError, match="epochs must be at least 1"):
        recipe("digits", epochs=0)
