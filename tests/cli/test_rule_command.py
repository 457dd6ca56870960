"""The rule and composed objectives on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import in_process

from vmcr2.data import open_data
from vmcr2.report import page, read_run
from vmcr2.report._summary import departures
from vmcr2.runs import RunFolder, fit, recipe

QUICK = ("--epochs", "2", "--set", "hidden=16", "--set", "dim=20", "--set", "eval_every=0")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "name", "objective"),
    [
        (("digits", "--objective", "auto"), "digits-auto", "ce+mcr2"),
        (("digits-auto",), "digits-auto", "ce+mcr2"),
        (("digits-auto", "--objective", "auto"), "digits-auto", "ce+mcr2"),
        (("digits-auto", "--set", "batch_size=19"), "digits-auto", "ce+vmcr2"),
        (("--objective", "ce+mcr2"), "digits-ce+mcr2", "ce+mcr2"),
        (("digits", "--objective", "ce+vmcr2"), "digits-ce+vmcr2", "ce+vmcr2"),
    ],
)
def test_it_trains(words: tuple[str, ...], name: str, objective: str) -> None:
    said = in_process("train", *words, *QUICK, "--out", "run", "--json")
    assert said.code == 0, said.err
    figures = json.loads(said.out)
    assert figures["readout"] == "head"
    config = RunFolder(Path("run")).read_config()
    assert (config.recipe, config.objective.name) == (name, objective)
    assert (config.optim.epochs, config.model.hidden, config.model.dim) == (2, (16,), 20)
    again = in_process("evaluate", "run", "--json")
    assert json.loads(again.out)["head_accuracy"] == figures["head_accuracy"]


def test_what_is_given_decides_the_rest_of_the_rule() -> None:
    in_process("train", "digits", "--objective", "auto", *QUICK, "--set", "batch_size=100", "--out", "run")
    config = RunFolder(Path("run")).read_config()
    assert config.optim.lr == pytest.approx(0.1)
    expected = recipe("auto", data="digits", batch_size=100, epochs=2, hidden=(16,), dim=20)
    assert config.deciding() == expected.deciding()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "cifar100-d100", "--objective", "auto"), "for auto: choose vmcr2 or mcr2"),
        (("train", "digits-auto", "--objective", "ce"), "is for ce+mcr2, but --objective is ce"),
        (("train", "--objective", "auto", "--set", "batch_size=many"), "batch_size takes a whole number"),
        (("train", "--objective", "auto", "--set", "objective=ce"), "choose another objective with --objective"),
        (("train", "--objective", "ce+mcr2", "--set", "weight=5"), "weight acts with vmcr2 or ce+vmcr2 only"),
        (("train", "--objective", "mcr2", "--set", "readout=head"), "readout is head, but mcr2 has no head"),
    ],
)
def test_a_users_mistake(words: tuple[str, ...], said: str) -> None:
    found = in_process(*words)
    assert found.code == 2
    assert said in found.err
    assert found.err.count("\n") == 1


def test_the_help_names_every_objective() -> None:
    for command in ("train", "sweep"):
        text = " ".join(in_process(command, "--help").out.replace("│", " ").split())
        assert "vmcr2, mcr2, ce, ce+mcr2 or ce+vmcr2" in text
        assert "or auto: the rule chooses" in text


def test_recipes_shows_the_rule_s_values_and_reasons() -> None:
    listed = in_process("recipes").out
    for name in ("digits-auto", "fashion-mnist-ce+mcr2", "cifar100-ce+vmcr2"):
        assert name in listed
    shown = json.loads(in_process("recipes", "cifar10-auto", "--json").out)
    assert shown["objective"] == {
        "value": "ce+mcr2",
        "origin": "the rule: exact where a batch holds, on average, enough of a class",
    }
    assert shown["flip"]["origin"].startswith("the rule: a mirrored picture")
    assert shown["data"]["origin"] == "given"
    assert shown["seed"]["origin"] == shown["readout"]["origin"] == "the trainer's default"
    assert "cifar10-auto: CIFAR-10, by the rule alone" in in_process("recipes", "cifar10-auto").out


@pytest.mark.parametrize("objective", ["auto", "ce+vmcr2"])
def test_a_sweep(objective: str) -> None:
    said = in_process(
        *("sweep", "digits", "--objective", objective, "--grid", "rate_weight=0.01,0.1", *QUICK, "--out", "s", "--json")
    )
    assert said.code == 0, said.err
    runs = json.loads(said.out)["runs"]
    assert len(runs) == 2
    for run in runs:
        assert {"holdout_accuracy", "head_accuracy", "readout"} <= set(run)


# ---- the manifest


def test_the_manifest_keeps_the_values_of_the_rule() -> None:
    source = open_data("digits")
    small = {"epochs": 2, "hidden": (16,), "device": "cpu"}
    run = fit(recipe("auto", data=source, objective="ce+mcr2", lr=0.3, **small), source=source, out="run")
    kept = json.loads(Path("run/manifest.json").read_text())["recipe"]
    usual = recipe("auto", data=source, objective="ce+mcr2", device="cpu")
    assert kept == json.loads(json.dumps(usual.acting()))
    record = read_run(run.folder)
    changed = {text.split(" ")[0] for text in departures(record)}
    assert changed == {"lr", "epochs", "hidden", "average"}  # what was given, and what the rule derives from it
    assert "lr 0.3 instead of 0.161" in page([record])


def test_a_recipe_by_name_keeps_its_own_values() -> None:
    in_process("train", "digits", "--objective", "auto", *QUICK, "--device", "cpu", "--out", "run")
    kept = json.loads(Path("run/manifest.json").read_text())["recipe"]
    assert kept["recipe"] == "digits-auto"
    assert (kept["dim"], kept["batch_size"]) == (128, 161)


def test_a_point_of_a_grid_is_the_run_that_train_makes() -> None:
    said = in_process("sweep", "digits", "--objective", "auto", "--grid", "batch_size=19,100", *QUICK, "--out", "swept")
    assert said.code == 0, said.err
    found = {}
    for folder in Path("swept/runs").iterdir():
        config = RunFolder(folder).read_config()
        found[config.optim.batch_size] = (config.objective.name, config.optim.lr)
    assert found == {19: ("ce+vmcr2", pytest.approx(0.019)), 100: ("ce+mcr2", pytest.approx(0.1))}
