"""The points of a grid: their product, what they are called, and an identity that outlives versions and places."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from vmcr2.runs import ALL_SETTINGS, Config, UserError, recipe
from vmcr2.sweep import Point, grid, read_axes


def values(points: list[Point], *names: str) -> list[tuple[object, ...]]:
    return [tuple(point.config.flat()[name] for name in names) for point in points]


def test_the_product_of_all_axes_in_order() -> None:
    points = grid(recipe("digits"), read_axes(["lr=0.1,0.3", "weight=10,20,40", "seed=0,1"]))
    expected = [(lr, w, s) for lr in (0.1, 0.3) for w in (10.0, 20.0, 40.0) for s in (0, 1)]
    assert values(points, "lr", "weight", "seed") == expected
    assert points[3].label == "lr=0.1 weight=20 seed=1"
    assert len({point.id for point in points}) == 12
    assert len({point.group for point in points}) == 6  # seeds are averaged over


def test_values_are_read_by_the_type_of_their_setting() -> None:
    points = grid(recipe("digits"), read_axes(["hidden=256,256;512;", "debias=yes,no", "mu=0.5", "schedule=step"]))
    assert values(points, "hidden", "debias") == [
        ((256, 256), True),
        ((256, 256), False),
        ((512,), True),
        ((512,), False),
        ((), True),
        ((), False),
    ]
    assert {(point.config.objective.mu, point.config.objective.weight) for point in points} == {(0.5, None)}


def test_one_value_with_commas_is_one_point() -> None:
    assert values(grid(recipe("digits"), read_axes(["mean=0.3,0.6", "std=1,1"])), "mean") == [((0.3, 0.6),)]
    assert values(grid(recipe("digits"), read_axes(["lr=0.1;0.3"])), "lr") == [(0.1,), (0.3,)]


def test_values_from_python_need_no_text() -> None:
    points = grid(recipe("digits"), {"hidden": [(64,), (32, 32)], "lr": [0.1]})
    assert values(points, "hidden", "lr") == [((64,), 0.1), ((32, 32), 0.1)]
    assert points[1].label == "hidden=32,32 lr=0.1 seed=0"


def test_a_value_given_twice_is_one_point() -> None:
    assert len(grid(recipe("digits"), read_axes(["lr=0.1,0.1,0.10"]))) == 1


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["lrr=0.1"], "there is no setting 'lrr': did you mean lr"),
        (["lr"], "--grid takes key=v1,v2"),
        (["lr=fast"], "lr takes a number, got 'fast'"),
        (["lr=0.1,"], "lr takes a number, got ''"),
        (["lr=0.1", "lr=0.3"], "lr is given twice"),
        (["schedule=square"], "schedule takes one of constant, step, cosine, linear"),
        (["lr=0.1,-1"], r"lr must be above 0.*the grid's point lr=-1"),
        (["mu=1", "weight=2"], "mu or weight"),
        (["momentum=0,0.9"], r"nesterov needs momentum above 0 .*momentum=0\)"),
        (["device=cpu,cuda"], "cannot vary device"),
        (["objective=ce,mse"], "no recipe like digits-vmcr2 for the objective mse"),
        (["objective=ce,mcr2", "weight=5,20"], r"weight acts with vmcr2 or ce\+vmcr2 only, and the objective is ce"),
    ],
)
def test_what_is_wrong_with_a_grid_is_said(texts: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        grid(recipe("digits"), read_axes(texts))


@pytest.mark.parametrize("axes", [{"weight": [5.0, 20.0]}, read_axes(["weight=5,20"])])
def test_an_axis_must_act_with_the_objective(axes: dict[str, list[Any]]) -> None:
    words = r"^weight acts with vmcr2 or ce\+vmcr2 only, and the objective is ce: .* point weight=5\)$"
    with pytest.raises(UserError, match=words):
        grid(recipe("digits", objective="ce"), axes)
    assert len(grid(recipe("digits"), axes)) == 2


def test_the_objective_is_an_axis_and_takes_the_settings_that_it_has() -> None:
    axes = read_axes(["objective=vmcr2,mcr2,ce", "weight=5,20", "lr=0.1"])
    points = grid(recipe("digits", epochs=3, atoms_per_class=7), axes)
    assert [dict(point.settings) for point in points] == [
        {"objective": "vmcr2", "weight": 5.0, "lr": 0.1},
        {"objective": "vmcr2", "weight": 20.0, "lr": 0.1},
        {"objective": "mcr2", "lr": 0.1},
        {"objective": "ce", "lr": 0.1},
    ]
    for point in points:
        own = {"atoms_per_class": 7} if point.settings["objective"] == "vmcr2" else {}
        expected = recipe("digits", **point.settings, **own, epochs=3, holdout=287)
        assert point.config.acting() == expected.acting(), "each has its own recipe, and the changes that it knows"


def test_the_objective_varies_without_a_recipe_too() -> None:
    points = grid(Config().replace(epochs=3, holdout=10), {"objective": ["vmcr2", "ce"]})
    assert values(points, "objective", "epochs") == [("vmcr2", 3), ("ce", 3)]


def test_one_value_of_several_types_is_one_point() -> None:
    points = grid(recipe("digits"), {"weight": [10, 10.0, "10", np.float32(10)], "hidden": [[32], (32,)]})
    assert [point.label for point in points] == ["weight=10 hidden=32 seed=0"]
    assert points[0].id == Point(recipe("digits", weight=10.0, hidden=(32,), holdout=287)).id


def test_a_contradiction_that_another_axis_resolves_is_none() -> None:
    points = grid(recipe("digits"), read_axes(["momentum=0", "nesterov=no"]))
    assert values(points, "momentum", "nesterov") == [(0.0, False)]


@pytest.mark.parametrize(("name", "expected"), [("digits", 287), ("mnist", 5000), ("cifar100", 5000)])
def test_without_a_hold_out_one_is_set(name: str, expected: int) -> None:
    assert {point.config.data.holdout for point in grid(recipe(name), {"lr": [0.1, 0.2]})} == {expected}
    assert grid(recipe(name, holdout=100), {})[0].config.data.holdout == 100


def test_the_identity_is_of_what_decides_the_run() -> None:
    one = Point(recipe("digits", holdout=100))
    for same in (
        {"device": "cpu"},
        {"data_path": "/elsewhere"},
        {"checkpoint_seconds": 1.0},
        {"recipe": ""},
        {"eval_every": 7},
        {"engine": "eager"},
    ):
        assert Point(one.config.replace(**same)).id == one.id
    for other in ({"lr": 0.123}, {"seed": 1}, {"epochs": 3}, {"holdout": 101}, {"hidden": (256, 257)}):
        assert Point(one.config.replace(**other)).id != one.id


def test_the_identity_survives_a_setting_that_is_added_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version has settings that this one has not; results made by this one must still be known."""
    point = Point(recipe("digits", holdout=100))
    before, decides = point.id, point.config.deciding()
    monkeypatch.setitem(ALL_SETTINGS, "novelty", ALL_SETTINGS["holdout"]._replace(default=3))
    for novelty, known in ((3, True), (4, False)):
        monkeypatch.setattr(Config, "deciding", lambda self, novelty=novelty: decides | {"novelty": novelty})
        assert (point.id == before) is known


def test_folder_names_are_safe_and_one_for_each_point() -> None:
    wild = [
        Point(recipe("digits", holdout=1, seed=seed), {"hidden": (256, 256), "data": "a/b ../ü*?\n" + "x" * 300})
        for seed in range(3)
    ]
    names = [point.folder_name for point in wild]
    assert len(set(names)) == 3
    for name in names:
        assert re.fullmatch(r"[\w.=,+-]{1,120}", name, re.ASCII)
        assert name.startswith("hidden=256,256,data=a_b")
    assert re.fullmatch(
        r"lr=0\.1,seed=0-[0-9a-f]{8}", grid(recipe("digits"), {"lr": [0.1]})[0].folder_name
    )  # what a person looks for


def test_values_from_python_that_need_each_other() -> None:
    points = grid(recipe("digits"), {"codes": ["flat"], "codes_trace": [2.0, 4.0]})
    assert values(points, "codes", "codes_trace") == [("flat", 2.0), ("flat", 4.0)]
