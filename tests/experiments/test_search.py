"""The search's driver makes each run once and keeps its line; its variants change the step as they say."""

from __future__ import annotations

import copy
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import reference
import torch
from cases import DOUBLE, Case
from torch import Tensor

from vmcr2 import VMCR2Loss
from vmcr2.functional._linalg import Guard
from vmcr2.losses import _variational_step as _pull
from vmcr2.sweep import _runs as runs
from vmcr2.train import Config, fit, recipe

SEARCH = Path(__file__).parents[2] / "experiments" / "search"
WEIGHT, BETA = 20.0, 0.1


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """The scripts import each other by name, as they do when they are run."""
    monkeypatch.syspath_prepend(SEARCH)
    return importlib.import_module


@pytest.fixture
def driver(load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """run.py over two tiny runs on digits, one whose data are not there, and one with a variant."""
    run, studies = load("run"), load("studies")
    tiny = recipe("digits", holdout=287, epochs=2, eval_every=0, hidden=(32,))
    tries = [
        studies.Try(tiny.replace(lr=0.1), "lr=0.1"),
        studies.Try(tiny, "the start"),
        studies.Try(recipe("mnist", holdout=5, data_path="/nowhere"), "elsewhere"),
    ]
    other = [studies.Try(tiny, "the start", "attract")]
    monkeypatch.setattr(run, "studies", lambda: {"tiny": tries, "other": other})
    return run


@pytest.fixture
def made(driver: ModuleType, in_this_process: None, monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """Runs are made in this process, and counted: the configurations that were handed to ``fit``."""
    found: list[Config] = []

    def counted(config: Config, **options: Any) -> Any:
        found.append(config)
        return fit(config, **options)

    monkeypatch.setattr(runs, "fit", counted)
    return found


def command(driver: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> None:
    where = ["--lines", str(folder / "lines"), "--runs", str(folder / "runs")]
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments, *where])
    driver.main()


def lines(folder: Path, study: str = "tiny") -> list[dict[str, Any]]:
    path = folder / "lines" / f"{study}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_workers_write_a_line_for_what_ended_and_none_for_what_was_lost(
    driver: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="1 of 3 runs ended without a result"):
        command(driver, monkeypatch, tmp_path, "tiny")
    first, second = lines(tmp_path)
    tries = driver.studies()["tiny"]
    assert [(line["id"], line["called"]) for line in (first, second)] == [(t.id, t.called) for t in tries[:2]]
    alone = fit(tries[0].config, out=tmp_path / "alone").summary
    for name in ("holdout_accuracy", "train_delta_r", "train_accuracy", "holdout_images"):
        assert first[name] == pytest.approx(alone[name], rel=1e-4), name  # threads of a worker may add in another order
    assert first["train_delta_r"] != pytest.approx(second["train_delta_r"], rel=1e-2)
    assert (first["recipe"], first["seed"], first["epochs"], first["variant"]) == ("digits-vmcr2", 0, 2, "")
    assert [(point[0], len(point)) for point in first["curve"]] == [(1, 4)]  # epochs: measured half-way
    assert 0 < first["trained_batch_delta_r"] != pytest.approx(first["batch_delta_r"])
    assert first["changes"] == {"holdout": 287, "epochs": 2, "hidden": [32], "lr": 0.1}
    said = capsys.readouterr().out
    assert "3 runs" in said
    assert "lost: tiny elsewhere: " in said
    assert "/nowhere" in said
    kept = {path.name for path in (tmp_path / "runs" / "tiny" / first["id"]).iterdir()}
    assert {"metrics.jsonl", "summary.json"} <= kept
    assert not kept & {"model.safetensors", "checkpoint"}


def test_nothing_is_made_twice(
    driver: ModuleType, made: list[Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = driver.studies()["tiny"]
    command(driver, monkeypatch, tmp_path, "tiny", "--only", "lr=")
    assert made == [tries[0].config]
    with pytest.raises(SystemExit, match="1 of 2 runs"):  # the one whose data are not there
        command(driver, monkeypatch, tmp_path, "tiny", "tiny")
    assert made == [tries[0].config, tries[1].config]
    before = (tmp_path / "lines" / "tiny.jsonl").read_bytes()
    with pytest.raises(SystemExit, match="1 of 1 runs"):
        command(driver, monkeypatch, tmp_path, "tiny")
    assert len(made) == 2
    assert (tmp_path / "lines" / "tiny.jsonl").read_bytes() == before
    # another study's run of the same settings is another run: it has a variant, and learns something else
    command(driver, monkeypatch, tmp_path, "other")
    assert made[2:] == [tries[1].config]
    (plain,) = [line for line in lines(tmp_path) if line["called"] == "the start"]
    (varied,) = lines(tmp_path, "other")
    assert varied["id"] == f"{plain['id']}-attract"
    assert varied["variant"] == "attract"
    assert abs(varied["train_delta_r"] - plain["train_delta_r"]) > 1e-3


def test_a_run_that_is_told_to_stop_stops(driver: ModuleType, tmp_path: Path) -> None:
    task = driver.Task("tiny", driver.studies()["tiny"][0], tmp_path / "run")
    with pytest.raises(runs.StoppedError):
        driver.Maker()(task, lambda: True)


def test_a_line_that_was_cut_off_is_made_again(
    driver: ModuleType, made: list[Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "tiny.jsonl").write_text(f'{{"id": "{driver.studies()["tiny"][0].id}", "call')
    command(driver, monkeypatch, tmp_path, "tiny", "--only", "lr=")
    assert len(made) == 1
    assert list(driver.lines_of(tmp_path / "lines", "tiny").read()) == [driver.studies()["tiny"][0].id]


def test_nothing_begins_after_its_time(
    driver: ModuleType,
    made: list[Config],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command(driver, monkeypatch, tmp_path, "tiny", "--seconds", "0")
    assert "out of time, 3 runs left" in capsys.readouterr().out
    assert not made
    assert not lines(tmp_path)


def test_show_prints_the_best_first_and_makes_nothing(
    driver: ModuleType,
    made: list[Config],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def line(called: str, accuracy: float, **more: Any) -> dict[str, Any]:
        figures = dict.fromkeys(("train_delta_r", "batch_delta_r", "train_accuracy", "seconds"), 1.0)
        held_out = {"holdout_class_mean_accuracy": 0.5, "holdout_accuracy_by_components": {"1": 0.3, "5": accuracy}}
        ends = {"id": called, "called": called, "variant": "", "holdout_accuracy": accuracy}
        return figures | held_out | ends | more

    written = [
        {"id": "x", "called": "lr=9", "variant": "", "failed": "features have NaN"},
        line("lr=0.1", 0.4),
        line("weight=2", 0.6, variant="steady"),
        line("lr=0.3", 0.5, head_accuracy=0.55),
    ]
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "tiny.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in written))
    command(driver, monkeypatch, tmp_path, "tiny", "--show")
    title, *shown = capsys.readouterr().out.splitlines()
    assert title == "tiny"
    assert [text.split()[0] for text in shown] == ["0.6000", "0.5000", "0.4000", "lr=9:"]
    assert shown[0].endswith("weight=2 [steady]")
    assert "best at 5: 0.500" in shown[1]
    assert "head 0.550" in shown[1]
    command(driver, monkeypatch, tmp_path, "tiny", "--show", "--only", "lr=0")
    assert [text.split()[-1] for text in capsys.readouterr().out.splitlines()] == ["tiny", "lr=0.3", "lr=0.1"]
    assert not made


def test_every_line_that_is_kept_is_of_a_run_in_its_study(load: Callable[[str], ModuleType]) -> None:
    """Or a recipe has changed under the studies, whose settings then have to be spelled out."""
    listed = {name: {t.id: t.called for t in tries} for name, tries in load("studies").studies().items()}
    kept = {path.stem: map(json.loads, path.read_text().splitlines()) for path in SEARCH.glob("*.jsonl")}
    assert {"rates", "forces", "ce", "mnist"} <= set(kept)
    for study, entries in kept.items():
        for line in entries:
            assert listed[study].get(line["id"]) == line["called"], study


# ---- variants: z of unit rows, loss = w·D − β·R at the atoms that the step leaves


CASE = Case(24, 6, 3, "skewed", soft=False)


def stepped(loss: VMCR2Loss, soft: bool) -> tuple[VMCR2Loss, Tensor]:
    """A copy of the loss after one step, and the gradient in z that the step gave."""
    after = copy.deepcopy(loss)
    z = CASE.features().requires_grad_()
    after.surrogate(z, batch_labels(soft)).backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None
    return after, z.grad


def batch_labels(soft: bool) -> Tensor:
    return Case(24, 6, 3, "skewed", soft).labels()


def latched(debias: bool, soft: bool) -> VMCR2Loss:
    loss = VMCR2Loss(
        3, 6, atoms_per_class=2, weight=WEIGHT, batch_expansion=BETA, scale=1.0, debias=debias, normalize=False
    ).double()
    loss.latch(CASE.features(seed=1), batch_labels(soft))
    return loss.train()


def parts(after: VMCR2Loss, soft: bool) -> tuple[Tensor, Tensor, Tensor]:
    """∂/∂z of w·(pairs' part of D), of w·(its part with the dictionary) and of −β·R, from the equations."""
    membership = Case(24, 6, 3, "skewed", soft).membership()
    z = CASE.features().requires_grad_()
    m = len(z)
    pairs, cross = z.new_zeros(()), z.new_zeros(())
    for j in range(3):
        share = membership[:, j]
        size = share.sum()
        together = torch.outer(share, share)
        if after.debias:
            together = together - torch.diag(share**2)
        # n_j/m · Σ_ii' weight (z_iᵀz_i')², the weights of a class's pairs adding up to one
        pairs = pairs + size / m * (together / together.sum() * (z @ z.T) ** 2).sum()
        moment = z.T @ torch.diag(share) @ z / size
        model = after.dictionary @ torch.diag(after.codes[:, j]) @ after.dictionary.T
        cross = cross - 2 * size / m * (moment * model).sum()
    rate = reference.coding_rate(z, after.eps_sq)
    found = [torch.autograd.grad(part, z, retain_graph=True)[0] for part in (pairs, cross, rate)]
    return WEIGHT * found[0], WEIGHT * found[1], -BETA * found[2]


def close(value: Tensor, expected: Tensor) -> bool:
    return torch.allclose(value, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("debias", [False, True])
@pytest.mark.parametrize("soft", [False, True])
def test_attract_leaves_the_pairs_out(load: Callable[[str], ModuleType], debias: bool, soft: bool) -> None:
    loss = latched(debias, soft)
    after, plain = stepped(loss, soft)
    with load("variants").attract():
        varied_after, varied = stepped(loss, soft)
    assert torch.equal(after.dictionary, varied_after.dictionary)  # Γ and A move as they did
    assert torch.equal(after.codes, varied_after.codes)
    assert not torch.equal(after.dictionary, loss.dictionary)
    by_pairs, by_dictionary, by_rate = parts(after, soft)
    assert by_pairs.abs().max() > 0.1
    assert close(plain, by_pairs + by_dictionary + by_rate)
    assert close(varied, by_dictionary + by_rate)
    assert torch.equal(stepped(loss, soft)[1], plain)


def test_steady_takes_the_rate_at_the_mean_of_the_batches_so_far(load: Callable[[str], ModuleType]) -> None:
    first, second = (CASE.features(seed=seed) for seed in (0, 1))
    before = _pull.expansion_gradient
    with load("variants").steady(decay=0.8):
        assert close(_pull.expansion_gradient(first, 0.5, Guard()), before(first, 0.5, Guard()))
        found = _pull.expansion_gradient(second, 0.5, Guard())
    mean = (0.8 * first.T @ first + 0.2 * second.T @ second) / 24
    assert close(found, 12 / 24 * second @ torch.linalg.inv(torch.eye(6, dtype=DOUBLE) + 12 * mean))
    assert not close(found, before(second, 0.5, Guard()))
    assert _pull.expansion_gradient is before


@pytest.mark.parametrize("name", ["attract"])
def test_a_variant_is_gone_after_a_run_that_broke(load: Callable[[str], ModuleType], name: str) -> None:
    loss = latched(debias=True, soft=False)
    plain = stepped(loss, soft=False)[1]
    variant = load("variants").VARIANTS[name]

    def broken() -> None:
        with variant():
            assert not close(stepped(loss, soft=False)[1], plain)
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert torch.equal(stepped(loss, soft=False)[1], plain)
    with load("variants").VARIANTS[""]():
        assert torch.equal(stepped(loss, soft=False)[1], plain)
