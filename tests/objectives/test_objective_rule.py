"""The rule from classes and batches to an objective and its settings."""

from __future__ import annotations

import pytest

from vmcr2.objectives import OBJECTIVES, choose_objective, default_dim
from vmcr2.runs import Config


@pytest.mark.parametrize(
    ("classes", "per_class", "batch", "dim", "chosen"),
    [
        (10, 5000, 1000, 128, "ce+mcr2"),
        (10, 5000, 120, 128, "ce+mcr2"),  # 12 of a class in a batch, room for ⌊128/10⌋ = 12
        (10, 5000, 119, 128, "ce+vmcr2"),
        (100, 500, 500, 500, "ce+mcr2"),
        (100, 500, 499, 500, "ce+vmcr2"),
        (100, 500, 2000, 500, "ce+mcr2"),
        (100, 3, 2000, 500, "ce+vmcr2"),  # a smaller set is one batch, and 3 of a class are fewer than 5
        (1000, 20, 1000, 1000, "ce+mcr2"),
        (1000, 20, 999, 1000, "ce+vmcr2"),
        (1000, 20, 1000, 50, "ce+mcr2"),  # there is room for one dimension at least
    ],
)
def test_the_exact_rate_where_a_batch_holds_enough_of_a_class(
    classes: int, per_class: int, batch: int, dim: int, chosen: str
) -> None:
    assert choose_objective([per_class] * classes, batch, dim) == chosen


def test_what_it_chooses_is_an_objective_and_never_goes_back() -> None:
    """With larger batches the choice changes once, from the variational to the exact rate."""
    for classes in (2, 7, 10, 100, 300):
        dim = default_dim(classes)
        found = [choose_objective([10_000] * classes, batch, dim) for batch in range(1, 3000, 7)]
        assert set(found) <= set(OBJECTIVES)
        assert found == sorted(found, reverse=True)  # "ce+vmcr2" first


@pytest.mark.parametrize("classes", [1, 2, 5, 9, 10, 11, 26, 100, 102, 200, 512, 513, 1000])
def test_every_class_has_room_and_a_step_stays_cheap(classes: int) -> None:
    dim = default_dim(classes)
    assert classes <= dim <= max(512, classes)
    assert dim <= default_dim(classes + 1)
    if classes <= 100:
        assert dim >= 5 * classes


@pytest.mark.parametrize("objective", ["vmcr2", "ce+vmcr2"])
def test_many_classes_are_trained_in_blocks(objective: str) -> None:
    rule = OBJECTIVES[objective].rule
    assert rule(513, 513, 500)["block"] is True
    assert "block" not in rule(512, 512, 500)


def test_the_paper_s_dimensions() -> None:
    assert (default_dim(10), default_dim(100)) == (128, 500)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    ("classes", "dim", "batch"), [(10, 128, 1000), (100, 500, 2000), (1000, 1000, 500), (3, 8, 40)]
)
def test_its_values_act_in_a_run_of_that_objective(objective: str, classes: int, dim: int, batch: int) -> None:
    values = OBJECTIVES[objective].rule(classes, dim, batch)
    config = Config().replace(objective=objective, dim=dim, batch_size=batch)._with(values)
    config.check_acting(values)
    assert {name: config.flat()[name] for name in values} == values
    assert values["lr"] > 0


def test_one_flat_atom_where_a_class_has_room_for_one_direction() -> None:
    for objective in ("vmcr2", "ce+vmcr2"):
        for dim in (30, 31, 59):
            one = OBJECTIVES[objective].rule(30, dim, 1000)
            assert (one["codes"], one["atoms_per_class"]) == ("flat", 1)
        more = OBJECTIVES[objective].rule(30, 60, 1000)
        assert (more["codes"], more["atoms_per_class"]) == ("free", 4)
        assert "codes_trace" not in more


@pytest.mark.parametrize("objective", ["ce", "ce+mcr2", "ce+vmcr2"])
def test_smaller_batches_have_shorter_steps_by_cross_entropy(objective: str) -> None:
    rates = [OBJECTIVES[objective].rule(10, 128, batch)["lr"] for batch in (50, 100, 500, 1000, 2000)]
    assert rates == pytest.approx([0.05, 0.1, 0.5, 1.0, 1.0])
