"""A search from its ranges to its best point, and shared by processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sweep_lines import lines

import vmcr2
from vmcr2.data import Source
from vmcr2.runs import Config, RunFolder, UserError, fit, recipe
from vmcr2.sweep import (
    Range,
    _runs as runs,
    _search as module,
    grid,
    rank,
    read_ranges,
    search,
    sweep,
    table,
    winner,
)

optuna = pytest.importorskip("optuna")

from vmcr2.sweep import _trials  # noqa: E402

ROOT = Path(vmcr2.__file__).parent.parent
TINY: dict[str, Any] = {"epochs": 2, "eval_every": 0, "hidden": (32,)}
SPACE = {"lr": Range(0.01, 1, True), "weight": Range(5, 80, True)}


def tiny(**changes: Any) -> Config:
    return recipe("digits", **(TINY | changes))


def until(condition: Callable[[], Any], *processes: subprocess.Popen[str]) -> Any:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if found := condition():
            return found
        for process in processes:
            assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("it did not come to that")


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.starts: list[tuple[int, int]] = []
        self.records: list[dict[str, Any]] = []
        self.losses: list[str] = []
        self.said: list[str] = []

    def started(self, total: int, done: int, note: str | None) -> None:
        self.starts.append((total, done))

    def finished(self, done: int, total: int, record: dict[str, Any], point: Any) -> None:
        self.records.append(record)

    def lost(self, point: Any, reason: str) -> None:
        self.losses.append(reason)


# ---- in one process


def test_a_trial_is_the_run_of_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def poison(_: Source) -> None:
        raise AssertionError("the test split was read")

    monkeypatch.setattr(Source, "test", poison)
    heard = Heard()
    done = search(tiny(), SPACE, tmp_path / "s", trials=4, prune=False, listener=heard)
    assert heard.starts == [(4, 0)]
    assert heard.records == lines(tmp_path / "s") == done.lines
    assert {record["worker"] for record in done.lines} == {done.lines[0]["worker"]}
    assert [record["trial"] for record in done.lines] == [0, 1, 2, 3]
    for point, record in zip(done.points, done.lines, strict=True):
        assert 0.01 <= point.config.optim.lr <= 1
        assert 5 <= point.config.objective.weight <= 80
        assert record["point"] == dict(point.settings)
        assert float(f"{point.config.optim.lr:.4g}") == point.config.optim.lr, "that a person can type"
    best = max(done.lines, key=lambda record: record["readout_accuracy"])
    found = winner(done.points, done.records)
    assert found is not None
    assert found.id == best["id"]
    assert rank(done.points, done.records)[0].settings == best["point"]
    alone = fit(tiny(holdout=287, **best["point"]), out=tmp_path / "alone").summary
    assert alone["holdout_accuracy"] == best["holdout_accuracy"]
    assert not list((tmp_path / "s").rglob("model.safetensors"))


def test_a_finished_search_makes_nothing_and_says_what_it_found(tmp_path: Path) -> None:
    first = search(tiny(), SPACE, tmp_path / "s", trials=3)
    heard = Heard()
    again = search(tiny(), SPACE, tmp_path / "s", trials=3, listener=heard)
    assert (heard.starts, heard.records) == ([(3, 3)], [])
    assert again.records == first.records
    more = search(tiny(), SPACE, tmp_path / "s", trials=5)
    assert len(more.lines) == len(lines(tmp_path / "s")) == 5


def test_another_objective_has_its_own_recipe_and_settings(tmp_path: Path) -> None:
    space = {"objective": ["vmcr2", "mcr2", "ce"], "weight": Range(5, 80)}
    done = search(tiny(), space, tmp_path / "s", trials=6, prune=False)
    kinds = {record["point"]["objective"] for record in done.lines}
    assert len(kinds) > 1
    for record in done.lines:
        assert record["recipe"] == f"digits-{record['point']['objective']}"
        assert ("weight" in record["point"]) is (record["point"]["objective"] == "vmcr2")
    assert len({record["id"] for record in done.lines}) == len(done.lines)


def test_a_search_finds_the_better_end(tmp_path: Path) -> None:
    """Up to 1e-3 three epochs of cross-entropy learn next to nothing. Of five seeds each drew all 12 above that."""
    base = tiny(objective="ce", epochs=3, readout="head")
    done = search(base, {"lr": Range(1e-6, 1, True)}, tmp_path / "s", trials=24, prune=False)
    rates = [record["point"]["lr"] for record in done.lines]
    assert sum(rate > 1e-3 for rate in rates[12:]) > 8, "TPE goes where it was good; by chance it is half"
    found = winner(done.points, done.records)
    assert found is not None
    assert found.config.optim.lr > 1e-3


def reported(out: Path) -> list[dict[int, float]]:
    return [trial.intermediate_values for trial in trials_in(f"sqlite:///{out}/search.db")]


def test_what_is_measured_on_the_way_is_told_to_the_database(tmp_path: Path) -> None:
    """Also where the settings measure less often than trials are compared."""
    done = search(tiny(epochs=20, eval_every=1000), SPACE, tmp_path / "s", trials=2)
    for record, values in zip(done.lines, reported(tmp_path / "s"), strict=True):
        metrics = RunFolder(tmp_path / "s" / record["folder"]).read_metrics()
        measured = {line["epoch"]: line["holdout_accuracy"] for line in metrics if "holdout_accuracy" in line}
        assert values == {epoch // 2: accuracy for epoch, accuracy in measured.items()}
        assert list(values) == list(range(1, 10))


def test_a_run_that_is_worse_than_the_median_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five come to their end; of those that follow, a bad one, a good one and a bad one, the bad ones do not."""
    seen: dict[float, float] = {}
    accuracies = iter([0.9] * 5 + [0.1, 0.95, 0.1])

    def told(config: Config, record: dict[str, Any]) -> float:
        rate = config.optim.lr
        return seen[rate] if rate in seen else seen.setdefault(rate, next(accuracies))

    monkeypatch.setattr(_trials, "held_out_accuracy", told)
    base = tiny(objective="ce", epochs=10)
    done = search(base, {"lr": Range(1e-3, 1, True)}, tmp_path / "s", trials=8)
    early = [done.lines[5], done.lines[7]]
    assert [record for record in done.lines if record.get("pruned")] == early
    assert [record["epochs"] for record in done.lines] == [10] * 5 + [1, 10, 1]
    assert {record["stopped_by"] for record in early} == {"callback"}
    rows = rank(done.points, done.records)
    assert [row.pruned for row in rows] == [[]] * 6 + [[1]] * 2
    assert table(rows).count("| stopped after epoch 1 |") == 2
    best = winner(done.points, done.records)
    assert best is not None
    assert best.id not in {record["id"] for record in early}, "whatever its accuracy was"
    # a grid makes the whole run: what was stopped early says little
    (whole,) = sweep(grid(base, {"lr": [early[0]["point"]["lr"]]}), tmp_path / "s").lines
    assert (whole["epochs"], whole["id"]) == (10, early[0]["id"])
    assert "stopped_by" not in whole


def test_nothing_is_stopped_where_nobody_wants_it(tmp_path: Path) -> None:
    done = search(tiny(epochs=10), SPACE, tmp_path / "s", trials=2, prune=False)
    assert {record["epochs"] for record in done.lines} == {10}
    assert reported(tmp_path / "s") == [{}, {}]


def test_a_broken_run_is_a_result_and_is_not_made_again(tmp_path: Path) -> None:
    done = search(tiny(objective="ce"), {"lr": Range(1e28, 1e30, True)}, tmp_path / "s", trials=2)
    assert [record["failed"][:14] for record in done.lines] == ["training broke"] * 2
    assert winner(done.points, done.records) is None
    heard = Heard()
    search(tiny(objective="ce"), {"lr": Range(1e28, 1e30, True)}, tmp_path / "s", trials=2, listener=heard)
    assert heard.records == []


def test_a_worker_whose_runs_all_fail_stops_and_the_next_command_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(config: Config, **options: Any) -> Any:
        raise OSError("the disk is full")

    heard = Heard()
    with monkeypatch.context() as patch:
        patch.setattr(runs, "fit", broken)
        done = search(tiny(), SPACE, tmp_path / "s", trials=5, listener=heard, say=heard.said.append)
    assert len(done.lost) == 3
    assert heard.losses == ["OSError: the disk is full"] * 3
    assert "3 runs in a row ended without a result" in heard.said[0]
    assert len(list((tmp_path / "s" / "errors").iterdir())) == 3
    again = search(tiny(), SPACE, tmp_path / "s", trials=5)
    assert (len(again.lines), again.lost) == (5, {})
    assert set(done.lost) < set(again.records)


def test_a_stopped_search_goes_on_from_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tiny(epochs=5, checkpoint_seconds=0.0)
    whole = search(base, SPACE, tmp_path / "whole", trials=3, prune=False)
    firsts: list[int] = []

    class Stop:
        stops = True

        def started(self, config: Config, folder: Path, first_epoch: int) -> None:
            firsts.append(first_epoch)

        def epoch(self, record: dict[str, Any]) -> None:
            if self.stops and len(firsts) == 2 and record["epoch"] == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(runs, "fit", lambda config, **options: fit(config, **(options | {"callbacks": [stop]})))
    stop = Stop()
    with pytest.raises(KeyboardInterrupt):
        search(base, SPACE, tmp_path / "s", trials=3, prune=False)
    assert len(lines(tmp_path / "s")) == 1
    stop.stops = False
    done = search(base, SPACE, tmp_path / "s", trials=3, prune=False)
    assert firsts == [0, 0, 2, 0]
    accuracies = [{record["id"]: record["holdout_accuracy"] for record in found.lines} for found in (whole, done)]
    assert accuracies[0] == accuracies[1]


def test_a_line_of_a_grid_is_not_made_again(tmp_path: Path) -> None:
    (record,) = sweep(grid(tiny(), {"batch_size": [64]}), tmp_path / "s").lines
    heard = Heard()
    done = search(tiny(), {"batch_size": ["64", "128"]}, tmp_path / "s", trials=2, prune=False, listener=heard)
    assert {line["point"]["batch_size"] for line in done.lines} == {64, 128}
    assert len(lines(tmp_path / "s")) == 2
    assert record in done.lines


def test_two_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    done = search(tiny(), SPACE, tmp_path / "s", trials=4, parallel=2)
    assert (len(done.lines), done.lost) == (4, {})
    assert len({record["id"] for record in lines(tmp_path / "s")}) == 4
    assert all(record["holdout_accuracy"] > 0.1 for record in done.lines)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["lr=0.1"], "--range takes key=low:high or key=low:high:log, got 'lr=0.1'"),
        (["lr=0.1:1:linear"], "--range takes key=low:high"),
        (["lr=1:0.1"], "--range lr takes the lower end first, got 1:0.1"),
        (["lr=0:1:log"], "with log its lower end must be above 0"),
        (["lr=a:b"], "--range lr takes numbers, got 'a:b'"),
        (["batch_size=1.5:9"], "--range batch_size takes whole numbers"),
        (["schedule=1:2"], "schedule: it is not a number; --choice schedule=v1,v2"),
        (["hidden=1:2"], "hidden: it is not a number"),
        (["objective=1:2"], "objective: it is not a number"),
        (["device=1:2"], "--range cannot vary device"),
        (["lrr=1:2"], "--range: there is no setting 'lrr': did you mean lr"),
        (["lr=0.1:1", "lr=0.1:2"], "lr is given twice"),
    ],
)
def test_what_is_wrong_with_a_range_is_said(texts: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_ranges(texts)


@pytest.mark.parametrize(
    ("base", "space", "words"),
    [
        ({}, {}, "something to vary"),
        ({}, {"lr": Range(-1, 1)}, r"lr must be above 0, got -1.0 \(the search's point lr=-1\)"),
        ({}, {"objective": ["vmcr2", "mse"]}, "no recipe like digits-vmcr2 for the objective mse"),
        ({}, {"schedule": ["cosine", "square"]}, "schedule takes one of"),
        ({"objective": "ce"}, {"weight": Range(1, 2)}, r"weight acts with vmcr2 or ce\+vmcr2 only"),
        ({}, {"batch_size": ["64"], "components": Range(0, 999)}, "components must be at most dim"),
    ],
)
def test_a_space_that_cannot_work_is_said_before_anything_is_written(
    base: dict[str, Any], space: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words):
        search(tiny(**base), space, tmp_path / "s", trials=3)
    assert not (tmp_path / "s").exists()


def test_without_optuna_people_are_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^a search needs Optuna: pip install 'vmcr2\[search\]'$"):
        search(tiny(), SPACE, tmp_path / "s", trials=3)


def test_other_ranges_or_settings_are_another_search(tmp_path: Path) -> None:
    search(tiny(), SPACE, tmp_path / "s", trials=1)
    with pytest.raises(UserError, match=r"lr is 0\.01:1:log there and 0\.01:2:log here"):
        search(tiny(), SPACE | {"lr": Range(0.01, 2, True)}, tmp_path / "s", trials=1)
    with pytest.raises(UserError, match="epochs is 2 there and 3 here"):
        search(tiny(epochs=3), SPACE, tmp_path / "s", trials=1)
    assert len(search(tiny(epochs=3), SPACE, tmp_path / "s", trials=1, study="longer").lines) == 1


# ---- workers in processes of their own

WORKER = """
import sys, time
from pathlib import Path
from vmcr2.sweep import _runs
marker, fit, count = Path({marker!r}), _runs.fit, 0
hangs_at, waits_at = {hangs_at}, {waits_at}

class Hang:
    def epoch(self, record):
        marker.touch()
        while True:
            time.sleep(1)

def counted(config, **options):
    global count
    count += 1
    while count == waits_at and not marker.exists():
        time.sleep(0.05)
    if count == hangs_at:
        options["callbacks"] = [*options["callbacks"], Hang()]
    return fit(config, **options)

_runs.fit = counted
from vmcr2.cli import main
main()
"""
ARGUMENTS = (
    *("sweep", "digits", "--epochs", "2", "--set", "hidden=32", "--trials", "12"),
    *("--range", "lr=0.01:1:log", "--range", "weight=5:80:log"),
)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a worker. It does not come to an end in one of its trials, or waits there for one that does not."""
    started: list[subprocess.Popen[str]] = []

    def worker(url: str, out: Path, marker: Path, hangs_at: int = 0, waits_at: int = 0) -> subprocess.Popen[str]:
        script = WORKER.format(marker=str(marker), hangs_at=hangs_at, waits_at=waits_at)
        process = subprocess.Popen(
            [sys.executable, "-c", script, *ARGUMENTS, "--storage", url, "--out", str(out)],
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield worker
    for process in started:
        process.kill()
        process.communicate()


def trials_in(url: str) -> list[Any]:
    from vmcr2.sweep._database import open_database, quiet

    with quiet():
        return list(optuna.load_study(study_name="vmcr2", storage=open_database(url)).get_trials())


@pytest.mark.parametrize("shared", [False, True], ids=["a folder each", "one folder"])
def test_two_workers_share_twelve_trials_and_one_is_killed(
    shared: bool, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    """They start at the same moment on a new database. One hangs in its second trial and is killed there.

    The other one waits for that in its own second trial: if it had started earlier, it could have made them all.
    """
    url = f"sqlite:///{tmp_path}/search.db"
    outs = [tmp_path / "a", tmp_path / ("a" if shared else "b")]
    hangs = tmp_path / "hangs"
    victim = start(url, outs[0], hangs, hangs_at=2)
    other = start(url, outs[1], hangs, waits_at=2)
    until(hangs.exists, victim, other)
    (stuck,) = [trial for trial in trials_in(url) if trial.state.name == "RUNNING" and _of(trial, victim)]
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    an_hour_passes_for(stuck, url)
    said, complaints = other.communicate(timeout=300)
    assert other.returncode == 0, (said, complaints)
    trials = trials_in(url)
    done = [trial for trial in trials if trial.state.name in ("COMPLETE", "PRUNED")]
    assert len(done) == 12
    assert len({tuple(trial.params.items()) for trial in done}) == 12, "none is done twice"
    (again,) = [trial for trial in done if trial.params == stuck.params]
    assert again.number != stuck.number
    assert _of(again, other), "its trial is done again"
    assert sum(_of(trial, victim) for trial in done) == 1
    written = {out: lines(out) for out in set(outs)}
    assert sorted(line["trial"] for found in written.values() for line in found) == [t.number for t in done]
    assert all(line["worker"].endswith(f":{other.pid}") for line in written[outs[1]] if not shared)
    assert "12 of 12 trials have a result" in said
    assert said.count("\n| 0.") == 12, "the table has the trials of both"
    assert "\n  vmcr2 train digits --epochs 2 --holdout 287 --seed 0 " in said


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the processes in /proc")
def test_a_killed_process_of_a_worker_is_replaced_and_its_trial_done_again(tmp_path: Path) -> None:
    out = tmp_path / "s"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "vmcr2", "sweep", "digits", "--epochs", "40", "--set", "checkpoint_seconds=0"),
            *("--trials", "3", "--range", "lr=0.1:0.5", "--no-prune", "--parallel", "2", "--out", str(out)),
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: list(out.glob("runs/*/checkpoint/last.safetensors")), process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    victim = next(int(one) for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes())
    os.kill(victim, signal.SIGKILL)
    said, complaints = process.communicate(timeout=300)
    assert process.returncode == 0, (said, complaints)
    assert complaints.endswith(": no result: worker ended (signal 9); it is tried again\n")
    assert complaints.count("\n") == 1
    assert len({line["id"] for line in lines(out)}) == len(lines(out)) == 3
    assert {line["epochs"] for line in lines(out)} == {40}


def an_hour_passes_for(trial: Any, url: str) -> None:
    """Without a sign of life: so the test need not wait for a minute."""
    from vmcr2.sweep._database import open_database

    with open_database(url).engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, '-1 hour') WHERE trial_id = ?",
            (trial._trial_id,),
        )


def _of(trial: Any, process: subprocess.Popen[str]) -> bool:
    return str(trial.user_attrs.get("worker", "")).endswith(f":{process.pid}")
