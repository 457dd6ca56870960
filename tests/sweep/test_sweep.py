"""Sweeps: every point exactly once whatever happens on the way, judged by held-out training images alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import in_process
from sweep_lines import lines

import vmcr2
from vmcr2.data import DataError, Source, Split
from vmcr2.data._digits import DigitsReader
from vmcr2.runs import Config, TrainingError, UserError, _trainer, fit, recipe
from vmcr2.sweep import Point, Sweep, _runs as runs, grid, rank, read_axes, sweep, table
from vmcr2.sweep._results import Results, sole_user

ROOT = Path(vmcr2.__file__).parent.parent
QUICK: dict[str, Any] = {"epochs": 2, "eval_every": 0, "hidden": (32,)}


def points(*axes: str, objective: str = "vmcr2", **changes: Any) -> list[Point]:
    return grid(recipe("digits", objective=objective, **(QUICK | changes)), read_axes(axes))


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ("seconds", "wall_seconds", "date", "device")}


class Counting:
    """Counts the runs that were truly made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Config] = []

        def counted(config: Config, **options: Any) -> Any:
            self.made.append(config)
            return fit(config, **options)

        monkeypatch.setattr(runs, "fit", counted)


def test_a_line_says_what_the_run_computed(tmp_path: Path) -> None:
    swept = sweep(points("lr=0.1,0.3", "seed=0,1"), tmp_path / "s")
    records = lines(tmp_path / "s")
    assert records == swept.lines
    assert [(r["point"], r["seed"]) for r in records] == [({"lr": lr}, s) for lr in (0.1, 0.3) for s in (0, 1)]
    alone = fit(recipe("digits", lr=0.3, seed=1, holdout=287, **QUICK), out=tmp_path / "alone").summary
    figures = {key: value for key, value in alone.items() if key != "seconds"}
    assert {key: records[3][key] for key in figures} == figures
    metrics = (tmp_path / "alone" / "metrics.jsonl").read_text().splitlines()
    last = json.loads(metrics[-1])
    for name in ("codes_trace", "variational_expansion", "variational_compression"):
        assert records[3][name] == last[name]
    assert "holdout_accuracy_by_components" in records[3]
    shared = {"holdout": 287, "epochs": 2, "hidden": [32]}
    assert records[0]["changes"] == shared | {"lr": 0.1}
    assert records[3]["changes"] == shared  # 0.3 is the recipe's own rate
    assert (records[3]["recipe"], records[3]["vmcr2"]) == ("digits-vmcr2", vmcr2.__version__)
    assert records[3]["wall_seconds"] >= records[3]["seconds"] > 0
    assert not [key for record in records for key in record if key.startswith("test")]


def test_cross_entropy_has_its_head_in_the_line(tmp_path: Path) -> None:
    (record,) = sweep(points(objective="ce"), tmp_path / "s").lines
    assert 0 < record["head_accuracy"] <= 1
    assert not [key for key in record if key.startswith(("codes_trace", "variational"))]


def test_the_test_set_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(self: Source) -> Split:
        raise AssertionError("the test set was read")

    asked: list[str] = []
    true_load = DigitsReader.load

    def watch(self: DigitsReader, part: Any) -> Split:
        asked.append(part)
        return true_load(self, part)

    monkeypatch.setattr(Source, "test", forbidden)
    monkeypatch.setattr(DigitsReader, "load", watch)
    swept = sweep(points("lr=0.1,0.3"), tmp_path / "s")
    assert len(swept.lines) == 2
    assert asked == ["train"]  # and the training images once for both runs


def test_what_a_sweep_opens_has_no_test_set() -> None:
    source = runs.open_for_sweep(recipe("digits"))
    for reach in (lambda: source.test(), lambda: source.checksum):
        with pytest.raises(RuntimeError, match="opened for training alone"):
            reach()
    assert source.train().images is source.train().images
    assert len(source.train_checksum) == 64


def test_a_hold_out_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="never on the test set"):
        sweep([Point(recipe("digits", **QUICK))], tmp_path / "s")
    with pytest.raises(UserError, match="never on the test set"):
        sweep(points("holdout=0,100"), tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"device": "tpu"}, UserError, "device takes auto, cpu or cuda"),
        ({"device": "cuda"}, UserError, "torch sees no CUDA device"),
        ({"data": "digitz", "holdout": 5}, DataError, "did you mean digits"),
        ({"data": "mnist", "data_path": "/nowhere"}, DataError, "/nowhere"),
    ],
)
def test_what_no_run_can_do_is_found_before_anything_is_written(
    changes: dict[str, Any], kind: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=words):
        sweep(points(**changes), tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_the_same_sweep_again_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sweep(points("lr=0.1,0.3"), tmp_path / "s")
    counting = Counting(monkeypatch)
    again = sweep(points("lr=0.1,0.3", device="cpu"), tmp_path / "s")
    assert counting.made == []
    assert again.lines == first.lines == lines(tmp_path / "s")


def test_an_extended_grid_makes_the_new_points_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sweep(points("lr=0.1"), tmp_path / "s")
    counting = Counting(monkeypatch)
    second = sweep(points("lr=0.1,0.3", "weight=20,40"), tmp_path / "s")  # 20 is the recipe's: known under lr=0.1
    assert [(c.optim.lr, c.objective.weight) for c in counting.made] == [(0.1, 40.0), (0.3, 20.0), (0.3, 40.0)]
    assert second.lines[0] == first.lines[0]
    assert len(lines(tmp_path / "s")) == 4
    sweep(points("lr=0.1", objective="ce"), tmp_path / "s")  # another recipe beside it
    assert [c.objective.name for c in counting.made[3:]] == ["ce"]
    assert len({record["id"] for record in lines(tmp_path / "s")}) == 5


def test_a_stopped_sweep_goes_on_from_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = points("lr=0.1,0.3", epochs=5, checkpoint_seconds=0.0)
    whole = sweep(chosen, tmp_path / "whole").lines

    class Stop:
        def __init__(self) -> None:
            self.first_epochs: list[int] = []
            self.at: int | None = 3

        def started(self, config: Config, folder: Path, first_epoch: int) -> None:
            self.first_epochs.append(first_epoch)

        def epoch(self, record: dict[str, Any]) -> None:
            if record["epoch"] == self.at and len(self.first_epochs) == 2:
                raise KeyboardInterrupt

        def note(self, text: str) -> None:
            pass

    stop = Stop()
    monkeypatch.setattr(runs, "fit", lambda config, **options: fit(config, **(options | {"callbacks": [stop]})))
    with pytest.raises(KeyboardInterrupt):
        sweep(chosen, tmp_path / "s")
    assert len(lines(tmp_path / "s")) == 1
    stop.at = None
    assert [timeless(record) for record in sweep(chosen, tmp_path / "s").lines] == [timeless(r) for r in whole]
    assert stop.first_epochs == [0, 0, 2]  # the checkpoint of the epoch before the stop


def test_a_run_that_ended_before_its_line_was_written_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (record,) = sweep(points("lr=0.1"), tmp_path / "s").lines
    results = tmp_path / "s" / "results.jsonl"
    results.write_bytes(results.read_bytes()[:-40])  # a kill in the midst of the line
    counting = Counting(monkeypatch)
    (mended,) = sweep(points("lr=0.1"), tmp_path / "s").lines
    assert counting.made == []
    assert mended["wall_seconds"] is None
    assert timeless(mended) == timeless(record)
    _, whole = results.read_text().splitlines()
    assert json.loads(whole) == mended
    assert Results(tmp_path / "s").read() == {mended["id"]: mended}


def test_a_half_made_run_of_another_place_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (point,) = points("lr=0.1")
    folder = tmp_path / "s" / "runs" / point.folder_name
    with pytest.raises(TrainingError):
        fit(point.config.replace(engine="eager", lr=1e30), out=folder)
    (record,) = sweep([point], tmp_path / "s").lines
    assert record["folder"] == f"runs/{point.folder_name}"
    assert Config.from_json((folder / "config.json").read_text()).acting() == point.config.acting()
    assert record["epochs"] == 2


@pytest.mark.parametrize("left", [(), ("checkpoint/",), ("checkpoint/", "manifest.json", ".config.json.9.tmp")])
def test_a_run_killed_while_its_folder_was_made_is_made(left: tuple[str, ...], tmp_path: Path) -> None:
    (point,) = points("lr=0.1")
    folder = tmp_path / "s" / "runs" / point.folder_name
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).mkdir() if name.endswith("/") else (folder / name).write_text("{")
    (record,) = sweep([point], tmp_path / "s").lines
    assert record["epochs"] == 2


def test_somebody_s_files_in_a_run_s_place_stay(tmp_path: Path) -> None:
    (point,) = points("lr=0.1")
    folder = tmp_path / "s" / "runs" / point.folder_name
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("my work")
    assert "already exists" in sweep([point], tmp_path / "s").lost[point.id]
    assert (folder / "notes.txt").read_text() == "my work"


def test_a_broken_run_is_a_result_and_the_sweep_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = points("lr=1e30,0.1", objective="ce")
    broken, good = sweep(chosen, tmp_path / "s").lines
    assert broken["failed"].startswith("training broke in epoch 1")
    assert "holdout_accuracy" not in broken
    assert good["holdout_accuracy"] > 0.3
    counting = Counting(monkeypatch)
    assert sweep(chosen, tmp_path / "s").lines == [broken, good]
    assert counting.made == []  # it would break again


def test_settings_that_do_not_fit_are_lost_and_the_sweep_goes_on(tmp_path: Path) -> None:
    chosen = points("batch_size=1,479")
    swept = sweep(chosen, tmp_path / "s")
    assert list(swept.lost) == [chosen[0].id]
    assert "set batch_size to at least 2" in swept.lost[chosen[0].id]
    assert [record["point"] for record in lines(tmp_path / "s")] == [{"batch_size": 479}]


def summary_alone(point: Point, out: Path) -> Path:
    """A summary beside an empty manifest: an error that neither the user's settings nor the training explain."""
    alone = out / "runs" / point.folder_name / "summary.json"
    alone.parent.mkdir(parents=True)
    alone.write_text("{}")
    alone.with_name("manifest.json").write_text("{}")
    return alone


def test_what_nobody_expected_is_lost_with_its_traceback(tmp_path: Path) -> None:
    chosen = points("lr=0.1,0.3")
    alone = summary_alone(chosen[0], tmp_path / "s")
    swept = sweep(chosen, tmp_path / "s")
    assert list(swept.lost) == [chosen[0].id]
    assert swept.lost[chosen[0].id].startswith("KeyError")
    trace = tmp_path / "s" / "errors" / f"{chosen[0].folder_name}.txt"
    assert "Traceback" in trace.read_text()
    assert len(swept.lines) == 1
    alone.unlink()
    assert len(sweep(chosen, tmp_path / "s").lines) == 2


LARGE = {"model.safetensors", "last.safetensors", "evaluation.safetensors"}


def test_weights_go_once_the_line_is_written(tmp_path: Path) -> None:
    small = {".lock", "config.json", "manifest.json", "metrics.jsonl", "summary.json"}
    for keep in (False, True):
        (record,) = sweep(points("lr=0.1"), tmp_path / str(keep), keep_weights=keep).lines
        kept = {path.name for path in (tmp_path / str(keep) / record["folder"]).rglob("*") if path.is_file()}
        assert kept == small if not keep else kept > small | LARGE
    sweep(points("lr=0.1"), tmp_path / "True")  # without --keep-weights: what was kept stays
    assert (tmp_path / "True" / record["folder"] / "model.safetensors").exists()


def test_a_report_s_file_that_would_be_thrown_away_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any) -> Any:
        raise RuntimeError("it was made")

    monkeypatch.setattr(_trainer, "evaluation_tensors", forbidden)
    assert not sweep(points(), tmp_path / "pruned").lost
    assert list(sweep(points(), tmp_path / "kept", keep_weights=True).lost.values()) == ["RuntimeError: it was made"]


def test_two_at_a_time_give_the_same_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a run ends, breaks or is lost."""
    # bit for bit is promised for one number of threads: workers take as many as there are here
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    chosen = points("lr=0.1,1e30", "seed=0,1", objective="ce")
    for parallel in (1, 2):
        summary_alone(chosen[3], tmp_path / str(parallel))
    one, two = (sweep(chosen, tmp_path / str(p), parallel=p) for p in (1, 2))
    assert [timeless(record) for record in two.lines] == [timeless(record) for record in one.lines]
    assert len(lines(tmp_path / "2")) == 3
    assert sum("failed" in record for record in two.lines) == 1
    assert [*two.lost] == [chosen[3].id]
    assert "Traceback" in (tmp_path / "2" / "errors" / f"{chosen[3].folder_name}.txt").read_text()


def test_the_table_is_sorted_by_the_mean_over_seeds() -> None:
    chosen = points("lr=0.1,0.2,0.3,0.4", "seed=0,1")
    accuracies = iter([0.5, 0.7, 0.9, 0.8, None, None, 0.95, None])
    records: dict[str, dict[str, Any]] = {}
    for point, accuracy in zip(chosen, accuracies, strict=True):
        figures = {"holdout_accuracy": accuracy, "train_delta_r": 10.0} if accuracy else {"failed": "it broke"}
        records[point.id] = {"id": point.id, "seed": point.config.run.seed, **figures}
    rows = rank(chosen, records)
    assert [row.settings["lr"] for row in rows] == [0.4, 0.2, 0.1, 0.3]
    assert rows[1].means["holdout_accuracy"] == pytest.approx(0.85)
    assert rows[1].deviations["holdout_accuracy"] == pytest.approx(0.1 / 2**0.5)
    assert "holdout_accuracy" not in rows[0].deviations  # one seed of two
    assert table(rows).splitlines() == [
        "| lr | seeds | hold-out | ΔR (train) | remark |",
        "|---|---|---|---|---|",
        "| 0.4 | 0,1 | 0.9500 | 10.0 | failed 1 of 2: it broke |",
        "| 0.2 | 0,1 | 0.8500 ± 0.0707 | 10.0 ± 0.0 |  |",
        "| 0.1 | 0,1 | 0.6000 ± 0.1414 | 10.0 ± 0.0 |  |",
        "| 0.3 | 0,1 | – | – | failed 2 of 2: it broke |",
    ]
    del records[chosen[0].id], records[chosen[1].id]
    assert len(rank(chosen, records)) == 3  # a point without a line has no row


def test_a_folder_takes_one_sweep_at_a_time(tmp_path: Path) -> None:
    with sole_user(tmp_path / "s"), pytest.raises(UserError, match="another process is at work"):
        sweep(points(), tmp_path / "s")
    assert len(sweep(points(), tmp_path / "s").lines) == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("my work")
    with pytest.raises(UserError, match="cannot write to"):
        sweep(points(), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "my work"


# ---- workers that die


COMMAND = ("--set", "checkpoint_seconds=0", "--set", "eval_every=0", "--grid", "lr=0.1,0.3")


def options(out: Path, epochs: int = 40) -> tuple[str, ...]:
    return ("--epochs", str(epochs), *COMMAND, "--out", str(out))


def start(out: Path, *more: str, epochs: int = 40) -> subprocess.Popen[str]:
    """Every process that starts imports torch and scikit-learn, which takes seconds."""
    return subprocess.Popen(
        [sys.executable, "-m", "vmcr2", "sweep", "digits", *options(out, epochs), *more],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(torch.get_num_threads())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that the group can be interrupted as a terminal does
    )


def workers_of(pid: int) -> list[int]:
    """Worker processes, not multiprocessing's tracker of resources."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def alive(pid: int) -> bool:
    """A zombie is dead: in a container nobody may wait for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Any, process: subprocess.Popen[str]) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(process.communicate())


linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the workers in /proc")


@linux
def test_a_killed_worker_is_lost_and_tried_again(tmp_path: Path) -> None:
    out = tmp_path / "s"
    process = start(out, "--parallel", "2")
    until(lambda: list(out.glob("runs/*/checkpoint/last.safetensors")), process)
    victim = workers_of(process.pid)[0]
    os.kill(victim, signal.SIGKILL)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 1, (stdout, stderr)
    assert "no result: worker ended (signal 9)" in stderr
    assert "the same command tries them again" in stderr
    (first,) = lines(out)
    again = in_process("sweep", "digits", *options(out))
    assert (again.code, again.err) == (0, "")
    assert "2 points, 1 of them done before" in again.out
    records = lines(out)
    assert records[0] == first
    assert sorted(record["point"]["lr"] for record in records) == [0.1, 0.3]  # every point exactly once
    config = recipe("digits", epochs=40, lr=records[1]["point"]["lr"], holdout=287, eval_every=0)
    undisturbed = fit(config, out=tmp_path / "alone").summary
    assert records[1]["holdout_accuracy"] == undisturbed["holdout_accuracy"]
    assert records[1]["train_delta_r"] == undisturbed["train_delta_r"]


@linux
def test_an_interrupted_sweep_stops_its_workers_and_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "s"
    process = start(out, "--parallel", "2", "--seeds", "0,1,2")
    assert process.stdout is not None
    seen = [process.stdout.readline() for _ in range(2)]
    assert "[1/6] lr=" in seen[1]
    workers = workers_of(process.pid)
    assert len(workers) == 2
    os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches the workers too
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, (stdout, stderr)
    assert stderr == f"vmcr2: stopped; give the same command again to continue {out}\n"
    assert not [pid for pid in workers if alive(pid)]
    said = 1 + stdout.count("] lr=")
    # a signal may come between a line and its announcement
    assert said <= len(lines(out)) <= min(said + 2, 5)


@linux
def test_workers_end_at_once_with_their_parent(tmp_path: Path) -> None:
    """Also in the middle of a run: without a line of metrics a run never looks at its pipe."""
    out = tmp_path / "s"
    process = start(out, "--parallel", "2", "--set", "log_every=100000", "--set", "hidden=32", epochs=100_000)
    until(lambda: len(list(out.glob("runs/*/checkpoint/last.safetensors"))) == 2, process)
    workers = workers_of(process.pid)
    assert len(workers) == 2
    process.kill()
    process.wait()  # communicate() would wait for the workers, which hold the pipes too
    deadline = time.monotonic() + 60  # their runs take far longer
    while time.monotonic() < deadline and any(map(alive, workers)):
        time.sleep(0.01)
    left = [pid for pid in workers if alive(pid)]
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    assert not left
    process.communicate()


def test_what_came_out_is_typed(tmp_path: Path) -> None:
    swept = sweep(points(), str(tmp_path / "s"))
    assert isinstance(swept, Sweep)
    assert (swept.out, swept.lost) == (tmp_path / "s", {})


def test_what_a_run_says_is_in_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def saying(config: Config, **options: Any) -> Any:
        options["callbacks"][0].note("the step cannot be captured")
        return fit(config, **options)

    (quiet,) = sweep(points(), tmp_path / "quiet").lines
    monkeypatch.setattr(runs, "fit", saying)
    (record,) = sweep(points(), tmp_path / "s").lines
    assert record["notes"] == ["the step cannot be captured"]
    assert "notes" not in quiet
