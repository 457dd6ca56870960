"""`bench check` on a GPU: which epochs it calls worse, and what it lets pass."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import in_process

from vmcr2.bench import check, epoch_check as bench
from vmcr2.cli import _bench as command

CPU = torch.device("cpu")
CARRIED = "cifar100, MCR², exact, 40,000 rows carried"
PREACT = "cifar100-preact, CE"
TIMES = dict(zip((row.name for row in bench.ROWS), (0.08, 0.085, 0.1, 0.09, 0.15, 0.5), strict=True))


def rows_of(*, factor: float = 1.0, peak: float = 4000.0, captured: bool = True) -> list[dict[str, Any]]:
    """What a record has of the short set, all times multiplied."""
    return [
        {
            **{"data": row.data, "contender": row.contender.title, "compiled": False, "captured": captured},
            **{"seconds_per_epoch": factor * TIMES[row.name], "peak_mib": peak},
        }
        for row in bench.ROWS
    ]


def changed(name: str, **figures: Any) -> list[dict[str, Any]]:
    """The same with other figures in one row."""
    rows = rows_of()
    rows[list(TIMES).index(name)] |= figures
    return rows


def worse(now: list[dict[str, Any]], before: list[dict[str, Any]] | None = None) -> list[str]:
    verdicts = bench.compare(now, rows_of() if before is None else before)
    return [verdict.name for verdict in verdicts if not verdict.holds]


def test_the_same_figures_hold_and_so_do_other_times_in_the_same_ratio() -> None:
    assert worse(rows_of()) == []
    assert worse(rows_of(factor=3.0)) == []
    names = [verdict.name for verdict in bench.compare(rows_of(), rows_of())]
    assert [name for name in names if "/" in name] == [
        f"epochs of {name} / cifar100, CE" for name in TIMES if name != "cifar100, CE"
    ]
    assert sum("peak MiB" in name for name in names) == len(TIMES)


@pytest.mark.parametrize("name", [name for name in TIMES if name != "cifar100, CE"])
def test_more_than_five_percent_is_worse(name: str) -> None:
    assert worse(changed(name, seconds_per_epoch=1.04 * TIMES[name])) == []
    assert worse(changed(name, seconds_per_epoch=1.06 * TIMES[name])) == [f"epochs of {name} / cifar100, CE"]
    assert worse(changed(name, seconds_per_epoch=0.5 * TIMES[name])) == []


def test_it_would_have_seen_the_rot() -> None:
    """Carried statistics made exact MCR² 2.5 times slower, and nobody noticed."""
    (verdict,) = [
        v for v in bench.compare(changed(CARRIED, seconds_per_epoch=0.25), rows_of()) if not v.holds and "/" in v.name
    ]
    assert verdict.line() == f"WORSE epochs of {CARRIED} / cifar100, CE: 3.12 (at most 1.31; was 1.25)"


def test_memory_must_not_grow_and_steps_must_be_replayed() -> None:
    assert worse(changed(PREACT, peak_mib=4200.0)) == []
    assert worse(changed(PREACT, peak_mib=4300.0)) == [f"epochs of {PREACT}: peak MiB"]
    assert worse(changed(PREACT, captured=False)) == [f"epochs of {PREACT}: replayed (1) or not (0)"]


@pytest.mark.parametrize("kind", ["not there", "failed", "compiled only"])
def test_a_row_without_a_record_is_said_and_does_not_fail(kind: str) -> None:
    before = [row for row in rows_of() if row["data"] != "cifar100-preact"]
    row = {"data": "cifar100-preact", "contender": "CE", "compiled": kind == "compiled only"}
    if kind == "failed":
        before.append(row | {"failed": "no room"})
    elif kind == "compiled only":
        before.append(row | {"seconds_per_epoch": 0.1, "peak_mib": 1.0, "captured": True})
    verdicts = bench.compare(rows_of(), before)
    assert [verdict.line() for verdict in verdicts if not verdict.compared] == [
        "new   epochs of cifar100-preact, CE / cifar100, CE: 6.25 (the record does not have it)",
        "new   epochs of cifar100-preact, CE: peak MiB: 4000.00 (the record does not have it)",
    ]
    assert all(verdict.holds for verdict in verdicts)


def test_the_committed_record_can_be_compared_with() -> None:
    against = bench.read_record(bench.COMMITTED)
    known = [row for row in bench.ROWS if row.find(against["results"]) is not None]
    assert bench.BASE in known
    verdicts = bench.compare(rows_of(), against["results"])
    assert sum(verdict.compared and "/" in verdict.name for verdict in verdicts) == len(known) - 1
    for verdict in bench.compare(against["results"], against["results"]):
        assert verdict.holds, "a record is not worse than itself"


class Measured:
    """In the place of a short set: outcomes one after another, the last again and again."""

    def __init__(self, *outcomes: list[dict[str, Any]]) -> None:
        self.outcomes, self.calls = list(outcomes), 0

    def __call__(self, *_: Any, **__: Any) -> Measured:
        return self

    def measure(self) -> list[dict[str, Any]]:
        self.calls += 1
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]


def test_what_was_worse_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = changed(CARRIED, seconds_per_epoch=0.25)
    for outcomes, holds, calls in (((slow, slow, rows_of()), True, 3), ((slow,), False, 3), ((rows_of(),), True, 1)):
        made = Measured(*outcomes)
        monkeypatch.setattr(bench, "ShortSet", made)
        _, verdicts = bench.run(CPU, {"results": rows_of()})
        assert (all(verdict.holds for verdict in verdicts), made.calls) == (holds, calls)


def test_epochs_of_every_row_run_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    real = bench.Epochs.time_one

    def time_one(self: Any) -> None:
        order.append(self._trainer.config.recipe)
        real(self)

    monkeypatch.setattr(bench.Epochs, "time_one", time_one)
    monkeypatch.setattr(bench, "ROWS", (bench.BASE, bench.ROWS[2], bench.ROWS[4]))
    said: list[str] = []
    ready = bench.ShortSet(CPU, images=4, say=said.append)
    assert said == ["epochs of cifar100, CE", f"epochs of {CARRIED}", "epochs of mnist, CE"]
    for rounds in (2, 1):
        order.clear()
        rows = ready.measure(rounds)
        assert order == ["cifar100-ce", "cifar100-mcr2", "mnist-ce"] * rounds
        assert [(row["epochs"], row["images"]) for row in rows] == [(rounds, 4)] * 3
    assert [row.find(rows) for row in bench.ROWS] == rows
    assert bench.compare(rows, rows)


@pytest.fixture
def _on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command as on a GPU, whose objectives are not measured."""
    monkeypatch.chdir(tmp_path)
    machine = check.read_record(check.committed_for(CPU))["environment"]
    Path("objectives.json").write_text(json.dumps({"benchmark": "objectives", "environment": machine, "results": []}))
    Path("epochs.json").write_text(json.dumps({"benchmark": "epoch", "environment": machine, "results": rows_of()}))
    monkeypatch.setattr(command, "choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(check, "run", lambda device, against, say: (copy.deepcopy(against), []))


CHECK = ("bench", "check", "--against", "objectives.json", "--json", "now.json")


@pytest.mark.usefixtures("_on_a_gpu")
@pytest.mark.parametrize("slow", [False, True])
def test_the_command_compares_epochs_on_a_gpu(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    now = changed(CARRIED, seconds_per_epoch=0.25) if slow else rows_of()
    monkeypatch.setattr(bench, "ShortSet", Measured(now))
    threads = torch.get_num_threads()
    said = in_process(*CHECK, "--against-epochs", "epochs.json")
    torch.set_num_threads(threads)
    assert said.code == int(slow), said.err
    lines = said.out.splitlines()
    assert lines[1].startswith("Epochs against epochs.json: ")
    assert lines[-1] == f"17 compared, {int(slow)} worse."
    assert sum(line.startswith("WORSE") for line in lines) == int(slow)
    assert json.loads(Path("now.json").read_text())["epochs"] == now


@pytest.mark.usefixtures("_on_a_gpu")
def test_the_command_says_what_an_older_record_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    record = json.loads(Path("epochs.json").read_text())
    record["results"] = [row for row in record["results"] if row["data"] == "cifar100"]
    Path("epochs.json").write_text(json.dumps(record))
    monkeypatch.setattr(bench, "ShortSet", Measured(rows_of()))
    threads = torch.get_num_threads()
    said = in_process(*CHECK, "--against-epochs", "epochs.json")
    torch.set_num_threads(threads)
    assert said.code == 0, said.err
    assert said.out.splitlines()[-1] == "11 compared, 0 worse, 4 without a record."
    assert "new   epochs of mnist, CE / cifar100, CE: 1.88 (the record does not have it)" in said.out


@pytest.mark.usefixtures("_on_a_gpu")
@pytest.mark.parametrize("content", [None, "{}", "nonsense"])
def test_a_missing_or_foreign_record_of_epochs_is_a_mistake_in_words(content: str | None) -> None:
    if content is not None:
        Path("record.json").write_text(content)
    threads = torch.get_num_threads()
    said = in_process(*CHECK, "--against-epochs", "record.json")
    torch.set_num_threads(threads)
    assert said.code == 2
    assert "record.json" in said.err
    assert "--against-epochs" in said.err or "vmcr2 bench epoch" in said.err
    assert not Path("now.json").exists()


def test_a_cpu_compares_no_epochs() -> None:
    threads = torch.get_num_threads()
    said = in_process("bench", "check", "--device", "cpu", "--against-epochs", "epochs.json")
    torch.set_num_threads(threads)
    assert (said.code, said.out) == (2, "")
    assert "--against-epochs acts on a GPU only" in said.err
