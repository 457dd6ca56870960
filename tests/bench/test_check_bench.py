"""`bench check`: what it calls worse, and what it lets pass."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import in_process

from vmcr2.bench import _contenders as ways, check, objectives

CPU = torch.device("cpu")
RATIO = "V-MCR² / exact, as shipped"
LOOP = "exact: class loop / as shipped"


def record_of(median: dict[str, float], spread: float = 0.0, peak: float = 10.0) -> dict[str, Any]:
    """One size with times and quartiles as given."""
    rows: dict[str, Any] = {}
    for name, value in median.items():
        times = {"lower_quartile_ms": value * (1 - spread), "upper_quartile_ms": value * (1 + spread), "runs": 9}
        rows[name] = {"peak_mib": peak, "eager": {"median_ms": value, **times}}
    ratios = objectives._ratios(rows)
    size = ways.Size("small", 60, 16, 4, 2)._asdict()
    return {"results": [{"size": size, "contenders": rows, "ratios": ratios}]}


BEFORE = record_of({ways.EXACT_LOOP: 40.0, ways.EXACT: 2.0, ways.VARIATIONAL: 4.0})


def worse(now: dict[str, Any], before: dict[str, Any] = BEFORE) -> list[str]:
    return [verdict.name for verdict in check.compare(now["results"][0], before) if not verdict.holds]


def test_the_same_figures_hold_and_so_do_other_times_in_the_same_ratio() -> None:
    assert worse(BEFORE) == []
    assert worse(record_of({ways.EXACT_LOOP: 400.0, ways.EXACT: 20.0, ways.VARIATIONAL: 40.0})) == []


def test_more_than_five_percent_is_worse_in_both_directions() -> None:
    assert worse(record_of({ways.EXACT_LOOP: 40.0, ways.EXACT: 2.0, ways.VARIATIONAL: 4.19})) == []
    assert worse(record_of({ways.EXACT_LOOP: 40.0, ways.EXACT: 2.0, ways.VARIATIONAL: 4.21})) == [f"small: {RATIO}"]
    assert worse(record_of({ways.EXACT_LOOP: 40.0, ways.EXACT: 2.2, ways.VARIATIONAL: 4.0})) == [f"small: {LOOP}"]
    assert worse(record_of({ways.EXACT_LOOP: 400.0, ways.EXACT: 2.0, ways.VARIATIONAL: 0.4})) == []


@pytest.mark.parametrize("noisy", ["before", "now"])
def test_noise_that_the_quartiles_show_is_allowed(noisy: str) -> None:
    times = {ways.EXACT_LOOP: 40.0, ways.EXACT: 2.0, ways.VARIATIONAL: 4.4}
    assert worse(record_of(times)) == [f"small: {RATIO}"]
    before = record_of({**times, ways.VARIATIONAL: 4.0}, spread=0.05 if noisy == "before" else 0.0)
    assert worse(record_of(times, spread=0.05 if noisy == "now" else 0.0), before) == []


def test_memory_must_not_grow() -> None:
    times = {ways.EXACT_LOOP: 40.0, ways.EXACT: 2.0, ways.VARIATIONAL: 4.0}
    assert worse(record_of(times, peak=11.4)) == []
    grown = worse(record_of(times, peak=11.6))
    assert grown == [f"small: {name}, peak MiB" for name in (ways.EXACT, ways.VARIATIONAL)], "not that of the textbook"


def test_another_size_is_not_compared() -> None:
    other = copy.deepcopy(BEFORE)
    other["results"][0]["size"]["m"] = 61
    assert check.compare(BEFORE["results"][0], other) == []


def test_what_was_worse_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = record_of({ways.EXACT_LOOP: 40.0, ways.EXACT: 2.0, ways.VARIATIONAL: 9.0})["results"][0]
    outcomes = [slow, slow, BEFORE["results"][0]]
    monkeypatch.setattr(objectives, "measure", lambda *_: outcomes.pop(0))
    _, verdicts = check.run(CPU, BEFORE, sizes=[ways.Size("small", 60, 16, 4, 2)])
    assert outcomes == []
    assert all(verdict.holds for verdict in verdicts)
    monkeypatch.setattr(objectives, "measure", lambda *_: slow)
    _, verdicts = check.run(CPU, BEFORE, sizes=[ways.Size("small", 60, 16, 4, 2)])
    assert [verdict.line() for verdict in verdicts if not verdict.holds] == [
        f"WORSE small: {RATIO}: 4.50 (at most 2.10; was 2.00)"
    ]


def test_every_ratio_of_the_short_set_is_in_the_committed_record() -> None:
    against = check.read_record(check.committed_for(CPU))
    for size in check.short_set(CPU):
        (old,) = [
            result for result in against["results"] if check._shape(result) == check._shape({"size": size._asdict()})
        ]
        names = {name for name, contender in ways.CONTENDERS.items() if size.has(contender)}
        wanted = {ratio for ratio, pair in objectives.RATIOS.items() if set(pair) <= names}
        assert wanted <= set(old["ratios"]["eager"])
    assert check.read_record(check.committed_for(torch.device("cuda")))["environment"]["gpu"] == "NVIDIA H200"


def test_the_wide_bounds_name_contenders_of_their_sizes() -> None:
    for size, _, ours, other, most in check.FLOORS:
        assert size.has(ways.CONTENDERS[ours])
        assert size.has(ways.CONTENDERS[other])
        assert ways.CONTENDERS[other].textbook or other == ways.EXACT
        assert most > 0


@pytest.mark.parametrize("slow", [False, True])
def test_the_command_says_it_line_by_line_and_by_its_exit_code(
    slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    size = ways.Size("small", 60, 16, 4, 2)
    before = objectives.run(CPU, budget=0.0, sizes=[size])
    Path("before.json").write_text(json.dumps(before))
    now = copy.deepcopy(before["results"][0])
    if slow:
        now["ratios"]["eager"][RATIO] *= 100.0
    monkeypatch.setattr(check, "short_set", lambda _: [size])
    monkeypatch.setattr(objectives, "measure", lambda *_: now)
    threads = torch.get_num_threads()
    said = in_process("bench", "check", "--device", "cpu", "--against", "before.json", "--json", "now.json")
    torch.set_num_threads(threads)
    assert said.code == int(slow)
    lines = said.out.splitlines()
    assert lines[0].startswith("Against before.json: ")
    assert lines[-1] == f"{len(lines) - 3} compared, {int(slow)} worse."
    assert sum(line.startswith("WORSE") for line in lines) == int(slow)
    assert json.loads(Path("now.json").read_text())["results"] == [now]


@pytest.mark.parametrize("content", [None, "{}", "nonsense"])
def test_a_missing_or_foreign_record_is_a_mistake_in_words(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("record.json").write_text(content)
    threads = torch.get_num_threads()
    said = in_process("bench", "check", "--device", "cpu", "--against", "record.json")
    torch.set_num_threads(threads)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "record.json" in said.err
