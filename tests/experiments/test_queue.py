"""The queue of what is left: studies first, nothing that would end too late, and results that travel without loss."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from experiments.defaults import studies as of
from experiments.defaults._trial import Trial
from experiments.defaults.studies import ruled, studies
from experiments.ledger import finals, rows as ledger
from experiments.ledger._pool import make_all
from experiments.ledger.rows import Row, rows
from experiments.queue import __main__ as command, _pieces
from experiments.queue._pieces import AROUND, GAIN, STUDIES, Clock, Piece, alone, pieces
from vmcr2.runs import recipe
from vmcr2.sweep import Outcome

SMALL: dict[str, Any] = {"epochs": 2, "hidden": (16,), "device": "cpu"}
ROW = Row("tuned-tiny", recipe("digits", **SMALL), (0, 1))
TRIALS = [
    Trial("tiny", "digits ce", ruled("digits", "ce", holdout=200, dim=20, **SMALL)),
    Trial("tiny", "digits mcr2", ruled("digits", "mcr2", holdout=200, dim=20, **SMALL)),
]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose queue has a study of two runs and a row of two. Its results folder, which is empty."""
    results = tmp_path / "results"
    for name in ("ledger", "defaults"):
        (results / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_pieces, "STUDIES", ("tiny",))
    for module in (_pieces, of):
        monkeypatch.setattr(module, "studies", lambda: {"tiny": TRIALS})
    monkeypatch.setattr(_pieces, "rows", lambda: {ROW.name: ROW})
    for module in (_pieces, ledger, finals):
        monkeypatch.setattr(module, "RESULTS", results / "ledger")
    monkeypatch.setattr(of, "RESULTS", results / "defaults")
    return results


def left(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    command.main(["show", *arguments] if arguments else [])
    return [line.split(" s  ")[1] for line in capsys.readouterr().out.splitlines()]


def test_the_queue_of_today_has_what_waits_for_a_gpu() -> None:
    """Studies that choose recipes come first, and each exists."""
    assert set(STUDIES) <= set(studies())
    found = pieces(Path("runs"))
    names = [piece.name for piece in found]
    assert len(set(names)) == len(names)
    of_studies = [isinstance(piece.source, Trial) for piece in found]
    assert of_studies == sorted(of_studies, reverse=True)
    order = {name: at for at, name in enumerate(rows())}
    at = [order[piece.source.row.name] for piece in found if not isinstance(piece.source, Trial)]
    assert at == sorted(at)
    assert all(alone(piece.config) > AROUND for piece in found)


def test_what_a_run_takes_follows_its_length_and_its_network() -> None:
    def steps(name: str, **changes: Any) -> float:
        return alone(recipe(name, **changes)) - AROUND

    assert steps("cifar100", epochs=200) == pytest.approx(2 * steps("cifar100", epochs=100))
    assert steps("cifar100-preact-ce", epochs=100) > 4 * steps("cifar100-ce", epochs=100)
    assert steps("cifar100-mcr2", epochs=100) > steps("cifar100-mcr2", epochs=100, memory=0)
    assert steps("tiny-imagenet-preact-ce", epochs=50) == pytest.approx(steps("cifar100-preact-ce", epochs=100))


def test_the_clock_learns_from_runs_that_ended() -> None:
    piece = Piece("one", Trial("study", "one", recipe("cifar100", epochs=100)))
    clock = Clock(7)
    assert clock.takes(piece) == pytest.approx(7 / GAIN * alone(piece.config))
    clock.ended(piece, 2 * alone(piece.config))
    assert clock.takes(piece) == pytest.approx(2 * alone(piece.config))
    clock.ended(piece, 4 * alone(piece.config))
    assert clock.takes(piece) == pytest.approx(3 * alone(piece.config))


def test_what_would_end_too_late_lets_shorter_ones_go_first(
    in_this_process: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[int] = []
    make_all(
        [90, 10, 80, 20],
        lambda: lambda job, _: Outcome({"job": job}),
        lambda job, *_: made.append(job),
        folder=tmp_path,
        parallel=1,
        seconds=60,
        takes=float,
    )
    assert made == [10, 20]
    assert "out of time, 2 runs left" in capsys.readouterr().out


def test_runs_travel_from_one_machine_to_another(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Made in workers on one, taken on the other; then nothing is left on either."""
    everything = ["tiny: digits ce", "tiny: digits mcr2", "tuned-tiny-seed0", "tuned-tiny-seed1"]
    assert left(capsys)[:-1] == everything
    assert left(capsys, "--only", "tiny*", "--but", "*mcr2")[:-1] == ["tiny: digits ce"]
    assert left(capsys, "--only", "*seed1", "tiny*", "*seed0")[:-1] == [everything[at] for at in (3, 0, 1, 2)]
    log, parcel = tmp_path / "queue.log", tmp_path / "new.tar.gz"

    def look(*arguments: str) -> str:
        command.main(["look", "--log", str(log), "--to", str(parcel), *arguments])
        return capsys.readouterr().out

    assert look().splitlines() == ["no results yet", f"there is no {log}"]
    command.main(["run", "--seconds", "600", "--parallel", "2", "--but", "*seed1"])
    log.write_text(capsys.readouterr().out)
    said = look("--seconds", "60", "--lines", "2").splitlines()
    assert said[0] == f"2 files in {parcel}"
    assert said[-1] == command.ENDED
    assert len(said) == 3
    assert left(capsys)[:-1] == ["tuned-tiny-seed1"]

    # the other machine has one of the results, of its own
    there = tmp_path / "there"
    for name in ("ledger", "defaults"):
        (there / name).mkdir(parents=True)
    lines = (machine / "defaults" / "tiny.jsonl").read_text().splitlines()
    (there / "defaults" / "tiny.jsonl").write_text(lines[0] + "\n")
    monkeypatch.setattr(command, "_full", lambda commit: commit * 2)
    for module in (_pieces, ledger, finals):
        monkeypatch.setattr(module, "RESULTS", there / "ledger")
    monkeypatch.setattr(of, "RESULTS", there / "defaults")
    for taken in (2, 0):  # twice is once
        command.main(["take", str(parcel), "--commit", "abc"])
        assert capsys.readouterr().out.splitlines()[-1] == f"{taken} new results"
    assert left(capsys)[:-1] == ["tuned-tiny-seed1"]
    first, second = (there / "defaults" / "tiny.jsonl").read_text().splitlines()
    assert first == lines[0]
    assert json.loads(second) == json.loads(lines[1]) | {"git_commit": "abcabc"}
    came = json.loads((there / "ledger" / "tuned-tiny-seed0.json").read_text())
    assert came["manifest"].pop("git_commit") == "abcabc"
    made = json.loads((machine / "ledger" / "tuned-tiny-seed0.json").read_text())
    del made["manifest"]["git_commit"]
    assert came == made


def test_a_result_by_other_settings_is_moved_aside(
    machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = {"settings": ROW.of(0).flat() | {"lr": 7.0}, "manifest": {"git_commit": "old"}}
    older, newer = json.loads(json.dumps([older, older | {"settings": ROW.of(0).flat()}]))
    path = machine / "ledger" / "tuned-tiny-seed0.json"
    path.write_text(json.dumps(newer))
    with tarfile.open(tmp_path / "new.tar.gz", "w:gz") as parcel:
        parcel.add(path, "ledger/tuned-tiny-seed0.json")
    path.write_text(json.dumps(older))
    command.main(["take", str(tmp_path / "new.tar.gz")])
    assert json.loads(path.read_text()) == newer
    (aside,) = (machine / "ledger" / "earlier").iterdir()
    assert json.loads(aside.read_text()) == older


@pytest.mark.parametrize(
    "name", ["../outside.json", "ledger/../../outside.json", "/tmp/outside.json", "ledger/code.py"]
)
def test_a_parcel_with_something_else_is_refused(machine: Path, tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as parcel:
        member = tarfile.TarInfo(name)
        member.size = 2
        parcel.addfile(member, io.BytesIO(b"{}"))
    with pytest.raises(SystemExit, match="is no result of a study or of the ledger"):
        command.main(["take", str(tmp_path / "bad.tar.gz")])
    assert not list(tmp_path.rglob("outside.json"))


def test_a_commit_that_git_does_not_know_is_refused(machine: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="git knows no commit 'no-such-commit'"):
        command.main(["take", str(tmp_path / "new.tar.gz"), "--commit", "no-such-commit"])
