"""Series: thinned without losing extremes, and labelled for what they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vmcr2.report import group_runs, read_run
from vmcr2.report._convergence import Panel, convergence_panels
from vmcr2.report._groups import run_labels, run_styles
from vmcr2.report._series import read_series, thin


@pytest.mark.parametrize("count", [1, 2, 10, 600, 601, 2000, 4321])
def test_thinning_keeps_ends_and_extremes(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    kept = thin(values, 600)
    assert len(kept) <= 600
    assert kept == sorted(set(kept))
    assert {0, count - 1, int(values.argmin()), int(values.argmax())} <= set(kept)
    if count <= 600:
        assert kept == list(range(count))


def test_a_single_spike_survives() -> None:
    values = np.zeros(2000)
    values[777], values[1234] = 9.0, -9.0
    assert {777, 1234} <= set(thin(values, 150))


def test_a_series_has_the_metrics_values(made: dict[str, Path]) -> None:
    run = read_run(made["plain"])
    series = read_series(run, "mismatch", 600)
    assert series is not None
    assert series.values == [line["mismatch"] for line in run.metrics]
    assert series.epochs == list(range(1, 21))
    assert series.seconds == [line["seconds"] for line in run.metrics]
    assert read_series(run, "holdout_accuracy", 600) is None


def panels_of(*paths: Path) -> dict[str, Panel]:
    runs = [read_run(path) for path in paths]
    groups = group_runs(runs)
    labels, styles = run_labels(runs, groups), run_styles(runs, groups)
    return {panel.key: panel for panel in convergence_panels(runs, groups, labels, styles)}


def test_batch_and_full_train_are_two_curves_and_the_last_full_one_is_the_summary_s(made: dict[str, Path]) -> None:
    run = read_run(made["plain"])
    delta = panels_of(made["plain"])["delta"]
    batch, full = delta.curves
    assert (batch.label, full.label) == ("batch", "full train")
    assert batch.series.last == run.metrics[-1]["batch_delta_r"]
    assert full.series.last == run.figure("train_delta_r")
    assert full.series.epochs[-1] == 20
    assert full.series.values[:-1] == [line["train_delta_r"] for line in run.metrics if "train_delta_r" in line]
    assert [line.label for line in delta.lines] == [
        f"at most {run.most_delta:.1f}",
        "paper, V-MCR²: «Training ΔR» 218.0",
    ]


def test_the_variational_terms_have_a_panel_of_their_own(made: dict[str, Path]) -> None:
    panels = panels_of(made["plain"])
    assert [curve.label for curve in panels["rates"].curves] == ["R", "R_c"]
    assert [curve.label for curve in panels["variational"].curves] == ["R^v", "R^v_c"]
    assert "not bounded by R's maximum" in panels["variational"].how
    assert panels["mismatch"].log
    for name in ("ce", "mcr2"):
        absent = panels_of(made[name])["variational"]
        assert absent.curves == []
        assert absent.says == "Only V-MCR² has a dictionary."


def test_a_hold_out_is_never_a_test_figure(made: dict[str, Path]) -> None:
    held = panels_of(made["holdout"])["accuracy"]
    assert {curve.label for curve in held.curves} == {"hold-out"}
    assert held.lines == []  # the paper's are test figures
    test = panels_of(made["plain"])["accuracy"]
    assert {curve.label for curve in test.curves} == {"test"}
    assert [line.value for line in test.lines] == [0.5872]
    mixed = panels_of(made["plain"], made["holdout"])["accuracy"]
    assert [curve.label.rsplit(": ", 1)[1] for curve in mixed.curves] == ["test", "hold-out"]


def test_runs_of_one_seed_each_are_one_group(made: dict[str, Path]) -> None:
    runs = [read_run(made[name]) for name in ("plain", "ce", "seed1", "holdout", "seed2")]
    groups = group_runs(runs)
    assert [group.runs for group in groups] == [[0, 2, 4], [1], [3]]
    assert [group.label for group in groups] == [
        "cifar100-vmcr2, holdout=0",
        "cifar100-ce",
        "cifar100-vmcr2, holdout=5000",
    ]
    labels = run_labels(runs, groups)
    assert len(set(labels)) == 5
    assert labels[2] == "cifar100-vmcr2, holdout=0, seed 1"
    assert run_styles(runs, groups) == [0, 1, 0, 2, 0]


def test_the_same_run_twice_still_has_two_names(made: dict[str, Path]) -> None:
    runs = [read_run(made["plain"]), read_run(made["old"])]
    groups = group_runs(runs)
    assert run_labels(runs, groups) == ["cifar100-vmcr2, seed 0 (plain)", "cifar100-vmcr2, seed 0 (old)"]


def test_many_runs_have_fewer_points_each(made: dict[str, Path]) -> None:
    panel = panels_of(*[made["hundred"]] * 12)["expansion"]
    assert len(panel.curves) == 12
    assert all(len(curve.series.values) <= 200 for curve in panel.curves)
