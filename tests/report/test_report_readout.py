"""What a run predicts by, classes that were not separated, and composed objectives: on the page and in the tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import write_run

from vmcr2.report import page, read_run
from vmcr2.report._groups import group_runs
from vmcr2.report._summary import summary_rows
from vmcr2.report._tables import Form, render, results_table

WARNING = "collapsed: all features point <almost> the same way. Try the rule"
SHOWN = "collapsed: all features point &lt;almost&gt; the same way. Try the rule"
COMPOSED = ("cifar100-ce+mcr2", "cifar100-ce+vmcr2")


def before_the_summary(text: str) -> str:
    return text.split('<section id="summary">', maxsplit=1)[0]


def test_a_warning_stands_above_everything_once_for_each_run(tmp_path: Path) -> None:
    ill = [read_run(write_run(tmp_path / str(seed), seed=seed, warning=WARNING)) for seed in (0, 1)]
    well = read_run(write_run(tmp_path / "well", seed=2))
    alone = before_the_summary(page([ill[0]]))
    assert alone.count(SHOWN) == 1
    assert "Training did not separate the classes." in alone
    together = before_the_summary(page([*ill, well]))
    assert together.count(SHOWN) == 2
    assert "seed 0: training did not separate the classes." in together
    assert "seed 2: training did not separate the classes." not in together
    assert "did not separate" not in page([well])
    # the copies of the table have it too, and nothing else of the page
    assert page([ill[0]]).count("Try the rule") == 3


@pytest.mark.parametrize("form", ["md", "latex", "html"])
def test_a_warning_stands_under_the_table(form: Form, tmp_path: Path) -> None:
    runs = [
        read_run(write_run(tmp_path / "ill", warning="stalled: it is")),
        read_run(write_run(tmp_path / "w", recipe="cifar100-ce")),
    ]
    text = render(results_table(runs, group_runs(runs)), form)
    assert text.count("Warning, cifar100-vmcr2: stalled: it is") == 1
    assert text.count("Warning") == 1
    if form == "latex":
        assert "\n% Warning" in text  # a comment: the table still compiles


def test_the_table_says_what_each_configuration_predicts_by(tmp_path: Path) -> None:
    names = ("cifar100-vmcr2", "cifar100-ce", "cifar100-ce+mcr2")
    runs = [read_run(write_run(tmp_path / name, recipe=name)) for name in names]
    table = results_table(runs, group_runs(runs))
    at = table.heads.index("Predicts by")
    assert [row[at] for row in table.rows] == ["nearest subspace", "its head", "its head"]
    head = table.heads.index("Its head")
    assert [row[head] == "–" for row in table.rows] == [True, False, False]


def test_a_folder_that_does_not_say_it_claims_nothing(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "old", recipe="cifar100-ce", old=True))
    assert (run.readout, run.warning) == (None, None)
    assert "Predicts by" not in results_table([run], group_runs([run])).heads
    assert "It predicts by" not in [row.name for row in summary_rows([run])]
    assert "by nearest subspace" in page([run])


@pytest.mark.parametrize("recipe", COMPOSED)
def test_a_composed_objective_has_its_title_and_both_accuracies(recipe: str, tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", recipe=recipe))
    rows = {row.name: row.cells for row in summary_rows([run])}
    assert run.summary is not None
    assert rows["Test accuracy, its own head"] == [f"{run.summary['head_accuracy']:.4f}"]
    assert rows["Test accuracy, nearest subspace"] == [f"{run.summary['test_accuracy']:.4f}"]
    assert rows["It predicts by"] == ["its head"]
    text = page([run])
    assert f"cross-entropy + {'V-MCR²' if 'vmcr2' in recipe else 'exact MCR²'} on cifar100" in text
    assert f"{run.summary['head_accuracy']:.4f} by its head" in text


@pytest.mark.parametrize(
    ("recipe", "old", "shown"),
    [
        ("cifar100-ce+vmcr2", False, "of a class&#39;s codes lie on"),
        ("cifar100-ce+vmcr2", True, "The codes A are not in this run folder"),
        ("cifar100-vmcr2", True, "The codes A are not in this run folder"),
        ("cifar100-ce+mcr2", False, "Only V-MCR² has a dictionary and codes"),
        ("cifar100-ce", False, "Only V-MCR² has a dictionary and codes"),
    ],
)
def test_the_codes_are_shown_where_there_is_a_dictionary(recipe: str, old: bool, shown: str, tmp_path: Path) -> None:
    text = page([read_run(write_run(tmp_path / "run", recipe=recipe, old=old))])
    choices = ("of a class&#39;s codes lie on", "The codes A are not in this", "Only V-MCR² has a dictionary and codes")
    assert [choice in text for choice in choices] == [shown.startswith(choice) for choice in choices]
