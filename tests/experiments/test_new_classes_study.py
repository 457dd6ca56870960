"""The study of added classes: what it measures, and that the documents show it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from experiments import _study, new_classes as study

ROOT = Path(__file__).parent.parent.parent


def test_the_documents_show_its_tables() -> None:
    page = (ROOT / "docs/new-classes.md").read_text()
    found = json.loads((ROOT / "experiments/results/new-classes.json").read_text())
    jobs = {job.folder for job in study.all_jobs()}
    runs = found["runs"]
    assert len(runs) == len(jobs)
    for table in study.tables(runs):
        assert table in page
    for run in runs:
        assert len(found["environment"]["commit"]) == 40
        for draws in run["added_with"].values():
            assert len(draws) == found["draws"] >= 10


def test_a_network_is_measured_on_what_it_has_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(study.PICTURES, "digits", (1, 20))
    monkeypatch.setattr(study, "DRAWS", 2)
    job = study.Job("digits", (0, 6), (6,), "ce+mcr2", 3)
    result = study.one(job, tmp_path, {})
    assert result["left_out"] == (0, 6)
    assert result["training_pictures"] < 0.75 * 1437  # without two of ten classes, and what is set aside
    assert result["known_accuracy"] > 0.9
    assert result["refused_left_out"] > 0.6
    assert result["refused_known"] < 0.3
    found = {n: [draw["new"] for draw in draws] for n, draws in result["added_with"].items()}
    assert list(found) == ["1", "20"]
    assert min(found["20"]) > 0.7
    assert all(draw["known"] > 0.75 for draws in result["added_with"].values() for draw in draws)
    again = study.one(job, tmp_path, {})  # the finished run is taken
    assert again == result


def test_one_data_set_is_measured_again_and_the_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (study, _study):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    old = [{"data": data, "known_accuracy": 0.5} for data in ("cifar100", "mnist", "digits")]
    (tmp_path / "new-classes.json").write_text(json.dumps({"environment": {"commit": "a"}, "runs": old}))
    monkeypatch.setattr(study, "run_all", lambda function, jobs, workers: [function(job) for job in jobs])
    study.measure("mnist", lambda job: {"data": job.data, "known_accuracy": 0.9}, 1)
    runs = json.loads((tmp_path / "new-classes.json").read_text())["runs"]
    assert [run["data"] for run in runs] == ["cifar100", *["mnist"] * 9, "digits"]
    assert {run["known_accuracy"] for run in runs if run["data"] == "mnist"} == {0.9}
    assert [run["environment"]["commit"] == "a" for run in runs] == [True, *[False] * 9, True]


def test_the_documents_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/new-classes.md").read_text(), re.DOTALL)
    scope: dict[str, Any] = {}
    exec(code, scope)
    right = [name == str(int(label)) for name, label in zip(scope["names"], scope["test"].labels, strict=True)]
    assert sum(right) > 0.85 * len(right)
    new = [ok for ok, label in zip(right, scope["test"].labels.tolist(), strict=True) if label in (0, 6)]
    assert sum(new) > 0.8 * len(new)
