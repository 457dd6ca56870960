"""One set of values for rows: the estimators' defaults, and what the trainer takes for tables."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from vmcr2.objectives import INPUT_NOISE, OBJECTIVES, WHOLE_WEIGHT, rows_rule
from vmcr2.sklearn import RateReductionClassifier, RateReductionEmbedding
from vmcr2.training import OptimSettings

STEPS = {"lr", "weight_decay", "momentum", "nesterov", "schedule", "epochs", "loss_scale"}
DICTIONARY = {"weight", "batch_expansion", "debias", "atoms_per_class"}
OWN = {
    "ce": set(),
    "mcr2": set(),
    "vmcr2": DICTIONARY,
    "ce+mcr2": {"rate_weight"},
    "ce+vmcr2": DICTIONARY | {"rate_weight"},
}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_has_the_settings_of_its_objective_and_no_others(objective: str) -> None:
    values = rows_rule(objective, 3, 39, 150, 500)
    assert set(values) == STEPS | OWN[objective]
    steps = {name: values.pop(name) for name in list(values) if name in OptimSettings.known()}
    OptimSettings(**steps)  # every value is one that its section takes
    OBJECTIVES[objective](**values)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kind", [RateReductionClassifier, RateReductionEmbedding])
def test_the_estimators_use_it(kind: type, objective: str) -> None:
    sizes = np.array([40, 10, 20])
    plan = kind(objective=objective)._plan(sizes, seed=0)
    for name, value in rows_rule(objective, 3, plan.dim, 70, 500).items():
        section = plan.optim if name in OptimSettings.known() else plan.objective
        assert getattr(section, name) == value, name
    assert plan.input_noise == INPUT_NOISE == inspect.signature(kind).parameters["input_noise"].default


def test_the_values_that_the_search_found() -> None:
    assert {name: rows_rule(name, 3, 39, 150, 500)["lr"] for name in OBJECTIVES} == {
        "vmcr2": 0.3, "mcr2": 0.03, "ce": 0.3, "ce+mcr2": 0.3, "ce+vmcr2": 0.3,
    }  # fmt: skip
    assert rows_rule("vmcr2", 3, 39, 150, 500)["weight_decay"] == 2e-3
    assert rows_rule("vmcr2", 3, 39, 150, 500)["loss_scale"] == 0.05
    assert rows_rule("mcr2", 3, 39, 150, 500)["loss_scale"] == 1


def test_epochs_make_about_300_steps() -> None:
    epochs = [rows_rule("ce", 2, 26, samples, 500)["epochs"] for samples in (100, 2000, 3000, 100_000)]
    assert epochs == [100, 75, 50, 30]


def test_a_rate_weighs_less_where_classes_are_small() -> None:
    weights = [rows_rule("ce+mcr2", 2, 50, 2 * size, 500)["rate_weight"] for size in (5, 25, WHOLE_WEIGHT, 5000)]
    assert weights == pytest.approx([0.02, 0.1, 0.2, 0.2])


def test_atoms_fit_into_the_dimensions() -> None:
    atoms = [
        rows_rule("vmcr2", k, dim, 1000, 500)["atoms_per_class"] for k, dim in ((2, 26), (10, 30), (20, 20), (2, 1))
    ]
    assert atoms == [12, 6, 2, 1]
