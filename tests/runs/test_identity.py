"""One place says what decides a result: runs that are equal there learn the same, and are averaged over seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from vmcr2.runs import ALL_SETTINGS, Config, deciding_settings, fit, recipe

SMALL: dict[str, Any] = {"epochs": 2, "hidden": (16,), "dim": 16, "eval_every": 0}
ASIDE: list[dict[str, Any]] = [
    {"engine": "eager"},
    {"compile": "no"},
    {"stream": "yes"},
    {"log_every": 1},
    {"eval_every": 1},
    {"checkpoint_seconds": 0.0},
    {"kept_samples": 0},
    {"device": "cpu"},
    {"data_path": "/elsewhere"},
    {"recipe": "mine"},
]


@pytest.mark.parametrize("change", ASIDE, ids=lambda change: next(iter(change)))
def test_where_and_how_often_a_run_is_watched_is_not_its_identity(change: dict[str, Any]) -> None:
    config = recipe("digits")
    other = config.replace(**change)
    assert other != config
    assert other.deciding() == config.deciding()
    assert other.replace(seed=5).deciding(seed=False) == config.deciding(seed=False)
    assert other.replace(seed=5).deciding() != config.deciding()


def test_those_are_all_of_them() -> None:
    plain = {name for name, known in ALL_SETTINGS.items() if not known.rule.decides}
    assert plain | {"recipe"} == {name for change in ASIDE for name in change}


@pytest.mark.parametrize(
    "change",
    [{"lr": 0.2}, {"precision": "bfloat16"}, {"holdout": 100}, {"components": 2}, {"epochs": 3}, {"weight": 5.0}],
    ids=lambda change: next(iter(change)),
)
def test_what_changes_the_figures_is(change: dict[str, Any]) -> None:
    config = recipe("digits")
    assert config.replace(**change).deciding(seed=False) != config.deciding(seed=False)


def test_another_objective_is_another_identity() -> None:
    names = [recipe("digits", objective=objective).deciding(seed=False) for objective in ("vmcr2", "mcr2", "ce")]
    assert [name["objective"] for name in names] == ["vmcr2", "mcr2", "ce"]


@pytest.mark.parametrize(
    ("start", "away"),
    [
        ({"augmentation": "crop", "crop_padding": 2}, {"augmentation": "none"}),
        ({"augmentation": "crop", "flip": False}, {"augmentation": "none"}),
        ({"schedule": "step", "milestones": (0.3,)}, {"schedule": "cosine"}),
        ({"codes": "flat", "codes_trace": 3.0}, {"codes": "free"}),
        ({"nu_codes": 1.0, "cap_codes_step": False}, {"codes": "flat"}),
    ],
)
def test_settings_without_effect_do_not_count(start: dict[str, Any], away: dict[str, Any]) -> None:
    """They are still there in Python, where the setting that made them act was changed afterwards."""
    moved, plain = Config().replace(**start).replace(**away), Config().replace(**away)
    assert moved != plain
    assert moved.deciding() == plain.deciding()
    assert moved.to_json() == plain.to_json()
    assert set(plain.deciding()) <= set(plain.acting())


def test_equal_identities_learn_the_same(tmp_path: Path) -> None:
    config = recipe("digits", device="cpu", **SMALL)
    moved = config.replace(augmentation="crop", crop_padding=2).replace(augmentation="none")
    others = [config.replace(log_every=1, engine="eager", recipe=""), moved.replace(eval_every=1)]
    weights = []
    for index, one in enumerate([config, *others]):
        assert one.deciding() == config.deciding()
        weights.append(load_file(fit(one, out=tmp_path / str(index)).folder / "model.safetensors"))
    for other in weights[1:]:
        assert all(torch.equal(value, other[name]) for name, value in weights[0].items())


@pytest.mark.parametrize("objective", ["vmcr2", "mcr2", "ce"])
def test_the_flat_settings_of_a_file_have_the_identity_of_the_run(objective: str) -> None:
    config = recipe("digits", objective=objective, seed=3)
    assert deciding_settings(json.loads(config.to_json())) == config.deciding(seed=False)


def test_settings_that_cannot_be_read_are_taken_as_they_are() -> None:
    flat = recipe("digits", seed=3).acting() | {"sharpness": 0.1, "made_up": 1}
    found = deciding_settings(flat)
    assert found["sharpness"] == 0.1
    assert found["made_up"] == 1
    assert not {"seed", "recipe", "engine", "log_every", "device", "data_path"} & set(found)
