"""`vmcr2 sweep --trials`, the train command of a sweep's best point, and the report of its folder."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command_line import in_process, parsed
from sweep_lines import lines, said_by

from vmcr2.runs import RunFolder

pytestmark = pytest.mark.usefixtures("bare_folder")

QUICK = ("--epochs", "2", "--set", "hidden=32")
SEARCH = ("--trials", "4", "--range", "lr=0.01:1:log")


def best_of(out: str = "s") -> RunFolder:
    best = max(lines(out), key=lambda line: (not line.get("pruned"), line.get("readout_accuracy", -1.0)))
    return RunFolder(Path(out, best["folder"]))


GRIDS = [
    ("digits", *QUICK, "--grid", "lr=0.1,0.3", "--seeds", "1,0"),
    ("digits", "--epochs", "1", "--grid", "hidden=32;16,16", "--set", "weight=9", "--set", "debias=no"),
    ("digits", *QUICK, "--grid", "objective=vmcr2,mcr2,ce", "--grid", "weight=5,20", "--set", "atoms_per_class=7"),
    ("digits-auto", *QUICK, "--grid", "batch_size=100,200", "--device", "cpu"),
    ("digits", "--objective", "auto", *QUICK, "--grid", "lr=0.1", "--holdout", "100"),
    ("digits", *QUICK, "--grid", "mu=0.5,0.25", "--grid", "seed=3"),
    ("digits", "--grid", "epochs=1,2", "--set", "hidden=32", "--grid", "holdout=90"),
    (
        "digits",
        "--set",
        "epochs=1",
        "--set",
        "holdout=90",
        "--set",
        "seed=5",
        "--set",
        "device=cpu",
        "--grid",
        "lr=0.1",
    ),
]


@pytest.mark.parametrize("arguments", GRIDS, ids=lambda arguments: " ".join(arguments)[:60])
def test_the_best_point_s_command_is_its_run(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_by(*arguments, "--out", "s", "--json")
    assert (said.code, said.err) == (0, "")
    shown = json.loads(said.out)
    ids = [line for line in shown["runs"] if line["point"] == shown["table"][0]["settings"]]
    config = RunFolder(Path("s", ids[0]["folder"])).read_config()
    assert parsed(shown["command"], monkeypatch).acting() == config.acting()
    assert f"\n  {shown['command']}\n" in said_by(*arguments, "--out", "s").out


def test_of_your_own_table_too(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "\n".join(f"{i % 7},{(i * 3) % 11},{'yes' if i % 7 > 3 else 'no'}" for i in range(140))
    Path("my table.csv").write_text(f"a,b,the class\n{rows}\n")
    said = said_by(
        *("my table.csv", "--label", "the class", "--epochs", "2"),
        *("--grid", "lr=0.01,0.1", "--grid", "objective=ce,ce+mcr2", "--out", "s", "--json"),
    )
    assert (said.code, said.err) == (0, "")
    command = json.loads(said.out)["command"]
    assert "'my table.csv' --label 'the class'" in command
    assert parsed(command, monkeypatch).acting() == best_of().read_config().acting()


def test_where_the_rule_chose_the_objective_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_by("digits", *QUICK, "--grid", "objective=auto", "--out", "s", "--json")
    found = parsed(json.loads(said.out)["command"], monkeypatch)
    made = best_of().read_config()
    assert (made.recipe, found.recipe) == ("digits-auto", "digits-ce+mcr2")
    assert found.replace(recipe=made.recipe).acting() == made.acting()


def test_no_command_where_every_run_broke() -> None:
    said = said_by("digits", *QUICK, "--objective", "ce", "--grid", "lr=1e30", "--out", "s")
    assert said.code == 0
    assert "vmcr2 train" not in said.out


# ---- a search


def test_a_search_as_a_person_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    words = ("digits", *QUICK, *SEARCH, "--choice", "objective=vmcr2,mcr2", "--range", "weight=5:80", "--out", "s")
    said = said_by(*words, "--seed", "3")
    assert (said.code, said.err) == (0, "")
    shown = said.out.splitlines()
    assert shown[0] == "4 points"
    assert all(re.match(rf"\[{n}/4\] objective=v?mcr2 lr=\S+ (weight=\S+ )?seed=3: ", shown[n]) for n in range(1, 5))
    assert shown[-1] == "4 of 4 trials have a result, and those of this folder a line in s/results.jsonl"
    (command,) = [line.strip() for line in shown if line.startswith("  vmcr2 train")]
    assert parsed(command, monkeypatch).acting() == best_of().read_config().acting()
    again = said_by(*words, "--seed", "3")
    assert again.out.splitlines()[0] == "4 points, 4 of them done before"
    assert again.out.splitlines()[-3] == f"  {command}"
    other = said_by(*words, "--seed", "4")
    assert (other.code, other.out) == (2, "")
    assert "searches something else: seed is 3 there and 4 here" in other.err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--range", "lr=0.1:1"), "--range is for a search: give --trials N too"),
        (("--choice", "lr=0.1,1"), "--choice is for a search"),
        (("--storage", "sqlite:///x.db", "--grid", "lr=1"), "--storage is for a search"),
        (("--study", "mine", "--grid", "lr=1"), "--study is for a search"),
        (("--no-prune", "--grid", "lr=1"), "--no-prune is for a search"),
        (("--trials", "3", "--grid", "lr=0.1,1"), "with --trials give --range and --choice"),
        (("--trials", "3"), "a search needs something to vary"),
        (("--trials", "0", "--range", "lr=0.1:1"), "--trials must be at least 1"),
        ((*SEARCH, "--choice", "lr=0.1,1"), "lr is set twice, by --range and by --choice"),
        ((*SEARCH, "--set", "lr=0.1"), "lr is set twice, by --range or --choice and by --set"),
        ((*SEARCH, "--range", "epochs=1:3", "--epochs", "2"), "epochs is set twice"),
        ((*SEARCH, "--seeds", "0,1"), "a search makes every trial with one seed"),
        (("--trials", "2", "--choice", "objective=ce,vmcr2", "--objective", "ce"), "objective is set twice"),
        (("--grid", "objective=ce,vmcr2", "--objective", "ce"), "objective is set twice"),
        ((*SEARCH, "--holdout", "0"), "never reads the test set"),
        ((*SEARCH, "--storage", "nonsense"), "--storage takes the address of a database"),
        (("--trials", "2", "--choice", "lrr=1,2"), "--choice: there is no setting 'lrr'"),
    ],
)
def test_a_users_mistake_in_one_sentence(args: tuple[str, ...], words: str) -> None:
    if "nonsense" in args:
        pytest.importorskip("optuna")
    said = said_by("digits", *args, "--out", "s")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("vmcr2: ")
    assert said.err.count("\n") == 1
    assert words in said.err


# ---- the report


def test_the_report_of_a_sweep_s_folder_has_its_best_runs_first() -> None:
    arguments = ("digits", *QUICK, "--objective", "ce", "--grid", "lr=1e-6,0.3,1e30,0.01", "--out", "s")
    assert said_by(*arguments).code == 0
    said = in_process("report", "s")
    assert (said.code, said.out, said.err) == (0, "report: s/report.html\n", "")
    page = Path("s/report.html").read_text()
    ranked = sorted((line for line in lines() if "failed" not in line), key=lambda line: -line["readout_accuracy"])
    places = [page.index(f"lr={line['point']['lr']:g}") for line in ranked]
    assert places == sorted(places)
    assert "lr=1e+30" not in page, "a run that broke has nothing to show"
    few = in_process("report", "s", "--best", "2", "-o", "few.html")
    assert (few.code, few.err) == (0, "vmcr2: s: the best 2 of 3 runs; --best N takes others\n")
    page = Path("few.html").read_text()
    assert "2 runs compared" in page


def test_a_report_of_a_sweep_without_runs_is_said() -> None:
    Path("s").mkdir()
    Path("s/results.jsonl").write_text('{"id": "1", "folder": "runs/gone", "failed": "it broke"}\n')
    said = in_process("report", "s")
    assert (said.code, said.out) == (2, "")
    assert "names no run that is still there" in said.err
    assert in_process("report", "s", "--best", "0").err == "vmcr2: --best must be at least 1, got 0\n"
