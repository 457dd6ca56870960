"""Tables: the paper's figures as its LaTeX has them, ours as the summaries have them, ± as numpy has it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from run_folders import write_run

from vmcr2.report import group_runs, read_run, render, results_table
from vmcr2.report._paper import PAPER, paper_figures
from vmcr2.report._summary import command, departures, resume_command, summary_rows
from vmcr2.report._tables import Table, spread
from vmcr2.runs import RECIPES

# copied from the paper's source: Table 2, Table 3, Table 1
TABLE_2 = r"""
  & MCR$^2$ & 44.6429 & 0.9785 \\         MNIST & V-MCR$^2$ & 44.2117 &  \textbf{0.9788}\\   & CE & - &  0.9738\\
  & MCR$^2$ & 49.40 & 0.8956\\         CIFAR-10 & V-MCR$^2$ & 48.43 &  \textbf{0.8997}\\   & CE & - &  0.8665\\
  & MCR$^2$ & 226.0519 &  0.2421 \\         CIFAR-100 & V-MCR$^2$ & 218.0185 &  \textbf{0.5872}\\ & CE & - & 0.5840\\
  Tiny & MCR$^2$ & 227.6468 &  0.1319\\ ImageNet & V-MCR$^2$ & 231.1538&  \textbf{0.2665}\\ 200 & CE & - &  0.1907\\
"""
TABLE_3 = r"""
  CIFAR-100 & V-MCR$^2$ & 130.2177 &  0.6951\\ & CE & - & 0.7146\\
  Tiny ImageNet & V-MCR$^2$ & 134.9504&  0.4189\\ 200 & CE & - &  0.4843\\
"""
TABLE_1 = r"""
  MNIST & 11.56  &  6.29\\ CIFAR-10 & 33.06  & 20.71\\ CIFAR-100 & 157.45  &  31.14\\ Tiny ImageNet & 527.85  & 44.23\\
"""
OBJECTIVES = {"MCR$^2$": "mcr2", "V-MCR$^2$": "vmcr2", "CE": "ce"}


def rows(source: str) -> list[list[str]]:
    return [
        [re.sub(r"\\textbf{(.*)}", r"\1", cell.strip()) for cell in row.split("&")][-3:] for row in source.split(r"\\")
    ][:-1]


@pytest.mark.parametrize(
    ("source", "families", "each", "table"),
    [
        (TABLE_2, ("mnist", "cifar10", "cifar100", "tiny-imagenet"), 3, "Table 2"),
        (TABLE_3, ("cifar100-preact", "tiny-imagenet-preact"), 2, "Table 3"),
    ],
)
def test_the_paper_s_figures(source: str, families: tuple[str, ...], each: int, table: str) -> None:
    found = rows(source)
    assert len(found) == each * len(families)
    for number, (objective, delta, accuracy) in enumerate(found):
        figures = PAPER[families[number // each], OBJECTIVES[objective]]
        assert figures.accuracy == float(accuracy)
        assert figures.delta_r == (None if delta == "-" else float(delta))
        assert figures.table == table


def test_the_paper_s_seconds() -> None:
    for family, (_, mcr2, vmcr2) in zip(("mnist", "cifar10", "cifar100", "tiny-imagenet"), rows(TABLE_1), strict=True):
        assert PAPER[family, "mcr2"].seconds_per_epoch == float(mcr2)
        assert PAPER[family, "vmcr2"].seconds_per_epoch == float(vmcr2)
        assert PAPER[family, "ce"].seconds_per_epoch is None
    assert len(PAPER) == 16


def test_every_recipe_of_a_table_finds_its_row() -> None:
    for name, make in RECIPES.items():
        found = paper_figures(name, make().config.objective.name)
        in_a_table = "Table" in make().title
        assert (found is not None) == in_a_table, name
        if found is not None:
            assert found.table in make().title
            assert found.epochs == make().config.optim.epochs or not name.endswith("-paper")


# ---- over seeds


def test_mean_and_deviation_are_numpy_s(made: dict[str, Path]) -> None:
    runs = [read_run(made[name]) for name in ("plain", "seed1", "seed2")]
    table = results_table(runs, group_runs(runs))
    (row,) = (dict(zip(table.heads, cells, strict=True)) for cells in table.rows)
    for head, name, digits in (
        ("Nearest subspace", "test_accuracy", 4),
        ("Batch ΔR", "batch_delta_r", 2),
        ("Full-train ΔR", "train_delta_r", 2),
    ):
        values = np.array([run.figure(name) for run in runs], float)
        assert row[head] == f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"
    assert (row["Runs"], row["Images"], row["Epochs"], row["Hardware"]) == ("3", "test", "20", "NVIDIA H200")
    assert (row["Accuracy, paper"], row["Batch ΔR, paper"], row["s/epoch, paper"]) == ("0.5872", "218.02", "31.14")
    assert "Its head" not in row


def test_one_run_has_no_deviation() -> None:
    assert spread([0.5], 2) == "0.50"
    assert spread([None], 2) == "–"
    assert spread([None, 1.0], 1) == "1.0"


def test_hold_out_rows_have_no_paper_accuracy(made: dict[str, Path]) -> None:
    runs = [read_run(made["holdout"]), read_run(made["ce"]), read_run(made["failed"])]
    table = results_table(runs, group_runs(runs))
    held, ce, failed = (dict(zip(table.heads, cells, strict=True)) for cells in table.rows)
    assert (held["Images"], held["Accuracy, paper"]) == ("hold-out", "–")
    assert ce["Its head"] == f"{runs[1].figure('head_accuracy'):.4f}"
    assert ce["Accuracy, paper"] == "0.5840"
    assert (failed["Runs"], failed["Nearest subspace"]) == ("0 (+1 unfinished)", "–")
    assert any("not test figures" in note for note in table.notes)


def test_the_three_forms(made: dict[str, Path]) -> None:
    runs = [read_run(made[name]) for name in ("plain", "seed1", "ce")]
    table = results_table(runs, group_runs(runs))
    markdown = render(table, "md").splitlines()
    assert markdown[0].count("|") == markdown[2].count("|") == len(table.heads) + 1
    assert [cell.strip() for cell in markdown[2].strip("|").split("|")] == table.rows[0]
    latex = render(table, "latex")
    assert latex.count(r"\\") == 3
    assert all(line.count("&") == len(table.heads) - 1 for line in latex.splitlines() if line.endswith(r"\\"))
    assert r"$\pm$" in latex
    assert "±" not in latex
    assert "Δ" not in latex
    html = render(table, "html")
    assert html.count("<td>") == 2 * len(table.heads)
    assert html.count("<th ") == len(table.heads)


def test_hostile_cells_are_escaped() -> None:
    table = Table(["a_b"], [["x & y | <b>$100% #1_{2}^~\\"]], [])
    assert "&lt;b&gt;" in render(table, "html")
    assert "<b>" not in render(table, "html")
    assert r"\|" in render(table, "md")
    latex = render(table, "latex")
    assert (
        r"x \& y | \textless{}b\textgreater{}\$100\% \#1\_\{2\}\textasciicircum{}\textasciitilde{}\textbackslash{}"
        in latex
    )


# ---- the summary


def test_the_summary_s_cells_are_the_run_s_figures(real: dict[str, Path]) -> None:
    run = read_run(real["vmcr2"])
    assert run.summary is not None
    shown = {row.name: row.cells[0] for row in summary_rows([run])}
    for name, key, form in (
        ("Test accuracy, nearest subspace", "test_accuracy", ".4f"),
        ("Test accuracy, 5 nearest neighbours", "test_neighbours_accuracy", ".4f"),
        ("ΔR, mean over batches", "batch_delta_r", ".2f"),
        ("ΔR, whole training set", "train_delta_r", ".2f"),
        ("R_c, whole training set", "compression", ".2f"),
        ("Mean |cosine| between classes", "between_cosine", ".3f"),
        ("Seconds of training", "seconds", ".1f"),
    ):
        assert shown[name] == format(run.summary[key], form)
    assert shown["ΔR at most (balanced classes)"] == "50.83"
    assert not [name for name in shown if name.startswith("Hold-out")]


def test_the_paper_s_accuracy_stands_beside_the_classifier_it_used(made: dict[str, Path]) -> None:
    by_name = {row.name: row.paper for row in summary_rows([read_run(made["ce"])])}
    assert by_name["Test accuracy, its own head"] == "0.5840"
    assert by_name["Test accuracy, nearest subspace"] == ""
    by_name = {row.name: row.paper for row in summary_rows([read_run(made["plain"])])}
    assert by_name["Test accuracy, nearest subspace"] == "0.5872"
    assert by_name["ΔR, mean over batches"] == "218.02"
    assert by_name["ΔR, whole training set"] == ""


def test_a_held_out_head_is_not_a_test_figure(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", recipe="cifar100-ce", holdout=5000))
    rows = {row.name: row for row in summary_rows([run])}
    assert rows["Hold-out accuracy, its own head"].cells == [f"{run.figure('head_accuracy'):.4f}"]
    assert all(row.paper == "" for name, row in rows.items() if "accuracy" in name)
    assert not [name for name in rows if name.startswith("Test")]


def test_the_command_as_typed_and_to_go_on(made: dict[str, Path]) -> None:
    run = read_run(made["failed"])
    assert command(run) == "vmcr2 train cifar100-vmcr2 --seed 0 --out failed"
    assert resume_command(run) == f"vmcr2 train --resume --out {made['failed']}"
    spaced = dataclasses.replace(run, path=Path("a b'c"))
    assert resume_command(spaced) == "vmcr2 train --resume --out 'a b'\"'\"'c'"


def test_departures_from_the_recipe(made: dict[str, Path]) -> None:
    assert departures(read_run(made["holdout"])) == [
        "holdout 5000 instead of 0",
        "dim 60 instead of 500",
        "epochs 20 instead of 2000",
    ]
