"""The ledger: each run is made once, goes on where it was cut off, and its table says what the results say."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from vmcr2.sweep import _runs as runs
from vmcr2.sweep._results import sole_user
from vmcr2.sweep._runs import StoppedError
from vmcr2.train import TrainingError, fit, recipe

LEDGER = Path(__file__).parents[2] / "experiments" / "ledger"


@pytest.fixture
def finals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """finals.py over one row of two tiny runs on digits."""
    for folder in (LEDGER.parent, LEDGER):
        monkeypatch.syspath_prepend(folder)
    module = importlib.import_module("finals")
    tiny = recipe("digits", epochs=2, hidden=(32,))
    row = module.Row("tuned-tiny", tiny, (0, 1))
    monkeypatch.setattr(module, "rows", lambda: {row.name: row})
    return module


@pytest.fixture
def table(finals: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module("table")
    monkeypatch.setattr(module, "rows", finals.rows)
    return module


def command(finals: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> None:
    where = ["--results", str(folder / "results"), "--runs", str(folder / "runs")]
    monkeypatch.setattr(sys, "argv", ["finals.py", *arguments, *where])
    finals.main()


def tasks(finals: ModuleType, folder: Path) -> list[Any]:
    row = finals.rows()["tuned-tiny"]
    return [finals.Task(row, seed, finals.folder_of(folder / "runs", row, seed)) for seed in row.seeds]


def test_a_run_is_written_once_with_all_that_makes_it_again(
    finals: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command(finals, monkeypatch, tmp_path, "tuned-tiny")
    result = json.loads((tmp_path / "results" / "tuned-tiny-seed1.json").read_text())
    alone = fit(recipe("digits", epochs=2, hidden=(32,), seed=1), out=tmp_path / "alone").summary
    for name in ("test_accuracy", "train_delta_r", "batch_delta_r"):
        assert result["summary"][name] == pytest.approx(alone[name], rel=1e-4)
    assert result["summary"]["test_images"] == 360, "the finals read the test images"
    assert result["command"] == "python experiments/ledger/finals.py tuned-tiny --seed 1 --again"
    assert (result["settings"]["lr"], result["settings"]["seed"]) == (0.3, 1)
    assert result["manifest"]["torch"]
    assert [point[0] for point in result["curve"]] == [1, 2]
    assert result["curve"][-1][4] == pytest.approx(result["curve"][-1][2] - result["curve"][-1][3], abs=2e-4)
    (cosines,) = {len(line) for line in result["cosines"]}
    assert len(result["cosines"]) == cosines == 100
    assert all(line[i] == 100 for i, line in enumerate(result["cosines"]))
    assert "2 runs" in capsys.readouterr().out
    command(finals, monkeypatch, tmp_path, "--all")
    assert "0 runs" in capsys.readouterr().out


def test_a_result_of_other_settings_is_made_again(
    finals: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command(finals, monkeypatch, tmp_path, "tuned-tiny", "--seed", "0")
    assert finals.result_of(tmp_path / "results", finals.rows()["tuned-tiny"], 0) is not None
    path = tmp_path / "results" / "tuned-tiny-seed0.json"
    older = json.loads(path.read_text())
    del older["settings"]["dropout_until"]  # written before there was such a setting
    path.write_text(json.dumps(older))
    assert finals.result_of(tmp_path / "results", finals.rows()["tuned-tiny"], 0) is not None
    changed = finals.Row("tuned-tiny", recipe("digits", epochs=2, hidden=(32,), lr=0.2), (0,))
    monkeypatch.setattr(finals, "rows", lambda: {changed.name: changed})
    assert finals.result_of(tmp_path / "results", finals.rows()["tuned-tiny"], 0) is None
    (before,) = (tmp_path / "runs").glob("tuned-tiny-*")
    metrics = (before / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    command(finals, monkeypatch, tmp_path, "tuned-tiny")
    assert "1 runs" in capsys.readouterr().out
    assert json.loads(path.read_text())["settings"]["lr"] == 0.2
    (aside,) = (tmp_path / "results" / "earlier").iterdir()
    assert aside.name.startswith("tuned-tiny-seed0-")
    assert json.loads(aside.read_text()) == older, "the older result is set aside, not overwritten"
    assert len(list((tmp_path / "runs").glob("tuned-tiny-*"))) == 2, "the old run's folder is not overwritten"
    assert (before / "metrics.jsonl").read_bytes() == metrics


def test_again_makes_what_has_a_result_beside_it(
    finals: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(finals, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sys, "argv", ["finals.py", "tuned-tiny", "--seed", "0"])
    finals.main()
    path = tmp_path / "results" / "tuned-tiny-seed0.json"
    of_the_ledger = path.read_bytes()
    assert "the ledger's" not in capsys.readouterr().out
    finals.main()
    assert "0 runs: all have results in" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["finals.py", "tuned-tiny", "--seed", "0", "--again"])
    finals.main()
    first, second = [line for line in capsys.readouterr().out.splitlines() if "ΔR" in line]
    accuracy = json.loads(of_the_ledger)["summary"]["test_accuracy"]
    assert f"tuned-tiny-seed0: {accuracy:.4f}" in first, "the same seed on the same machine"
    assert second.strip().startswith(f"the ledger's: {accuracy:.4f}")
    assert path.read_bytes() == of_the_ledger
    again = json.loads((tmp_path / "runs" / "again" / "results" / path.name).read_text())
    assert again["manifest"]["started"] != json.loads(of_the_ledger)["manifest"]["started"]
    finals.main()
    assert "give another --results" in capsys.readouterr().out


def test_what_broke_is_a_result_and_what_was_lost_is_none(
    finals: ModuleType,
    in_this_process: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def breaks(config: Any, out: Path, **options: Any) -> None:
        fit(config, out=out, **options)
        raise TrainingError("training broke in epoch 2")

    first, second = (tmp_path / "results" / f"{task.name}.json" for task in tasks(finals, tmp_path))
    monkeypatch.setattr(runs, "fit", breaks)
    command(finals, monkeypatch, tmp_path, "tuned-tiny", "--seed", "0")
    assert json.loads(first.read_text())["summary"] == {"failed": "training broke in epoch 2"}
    assert "tuned-tiny-seed0: failed, training broke in epoch 2" in capsys.readouterr().out
    monkeypatch.setattr(runs, "fit", lambda *a, **o: 1 / 0)
    with pytest.raises(SystemExit, match="1 of 1 runs ended without a result"):
        command(finals, monkeypatch, tmp_path, "tuned-tiny", "--seed", "1")
    said = capsys.readouterr().out
    assert "lost: tuned-tiny-seed1: ZeroDivisionError" in said
    assert "Traceback" in said
    assert not second.exists()


def test_settings_that_decide_nothing_have_a_folder_of_their_own(finals: ModuleType, tmp_path: Path) -> None:
    """Or a finished run would be taken for one with other settings, which its result says it has."""
    row = finals.rows()["tuned-tiny"]
    other = finals.Row(row.name, row.config.replace(eval_every=1), row.seeds)
    assert finals.folder_of(tmp_path, row, 0) == finals.folder_of(tmp_path, row, 0)
    assert len({finals.folder_of(tmp_path, r, seed) for r in (row, other) for seed in (0, 1)}) == 4


def test_a_run_that_is_told_to_stop_stops(finals: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(StoppedError):
        finals.Maker()(tasks(finals, tmp_path)[0], lambda: True)


def test_a_row_that_is_named_twice_is_made_once(
    finals: ModuleType,
    in_this_process: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command(finals, monkeypatch, tmp_path, "tuned-tiny", "tuned-tiny", "--seed", "0")
    assert "1 runs" in capsys.readouterr().out


def test_two_at_once_do_not_share_a_folder(
    finals: ModuleType, in_this_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sole_user(tmp_path / "runs"), pytest.raises(SystemExit, match="is at work in"):
        command(finals, monkeypatch, tmp_path, "tuned-tiny")


def test_rows_are_named_or_all(
    finals: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in ((), ("tuned-tiny", "--all")):
        with pytest.raises(SystemExit):
            command(finals, monkeypatch, tmp_path, *arguments)
        assert "name rows, or --all: tuned-tiny" in capsys.readouterr().err


def result(finals: ModuleType, folder: Path, seed: int, summary: dict[str, Any]) -> None:
    task = tasks(finals, folder)[seed]
    content = {
        "row": task.row.name,
        "seed": seed,
        "settings": finals.settings_of(task.row.of(seed)),
        "manifest": {"device": "NVIDIA H200", "git_commit": "abcdef0123"},
        "summary": summary,
        "curve": [[1, 5.0], [2, 47.0 + seed]],
        "curve_has": ["epoch", "batch_delta_r"],
    }
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results" / f"{task.name}.json").write_text(json.dumps(content))


def test_the_table_has_means_deviations_and_what_broke(finals: ModuleType, table: ModuleType, tmp_path: Path) -> None:
    empty = table.ledger(tmp_path / "results").splitlines()[-1]
    assert "not run yet" in empty
    assert "`tuned-tiny` | 2 |" in empty
    figures = {"test_accuracy": 0.5, "test_class_mean_accuracy": 0.45, "train_delta_r": 40.0}
    figures |= {"batch_delta_r": 41.0, "seconds": 10.4}
    result(finals, tmp_path, 0, figures)
    result(finals, tmp_path, 1, figures | {"test_accuracy": 0.6, "head_accuracy": 0.7})
    assert table.ledger(tmp_path / "results").splitlines()[-1] == (
        "| `tuned-tiny` | 2 | 0, 1 | 12 | 0.5500 ± 0.0707 | 0.4500 ± 0.0000 | 0.7000 "
        "| 40.0 ± 0.0 | 41.0 ± 0.0 | 47.5 ± 0.7 | – | 10 | H200 | abcdef0 |"
    )
    result(finals, tmp_path, 1, {"failed": "training broke"})
    assert "| 0, 1 (1 broke) | 12 | 0.5000 | 0.4500 | – | 40.0 | 41.0 | 47.0 |" in table.ledger(tmp_path / "results")


def test_what_a_row_was_before_stands_below_it(finals: ModuleType, table: ModuleType, tmp_path: Path) -> None:
    figures = {"test_accuracy": 0.5, "head_accuracy": 0.6, "train_delta_r": 40.0, "batch_delta_r": 41.0, "seconds": 9.6}
    for seed in (0, 1):
        result(finals, tmp_path, seed, figures)
        path = tmp_path / "results" / f"tuned-tiny-seed{seed}.json"
        now = json.loads(path.read_text())
        path.write_text(json.dumps(now | {"settings": now["settings"] | {"lr": 7.0, "epochs": 3}}))
        finals.keep(tmp_path / "results", path.stem, now | {"summary": figures | {"test_accuracy": 0.9}})
    above, _, below = table.ledger(tmp_path / "results").partition("which the rows had before:")
    assert "| 0.9000 ± 0.0000 |" in above
    assert below.strip().splitlines()[2:] == [
        "| `tuned-tiny` | lr 7.0, epochs 3 | 0, 1 | 0.5000 ± 0.0000 | 0.6000 ± 0.0000 | 40.0 ± 0.0 | 41.0 ± 0.0 "
        "| 10 | abcdef0 |"
    ]


def test_the_paper_s_figures_stand_beside_a_row(finals: ModuleType, table: ModuleType) -> None:
    literal = finals.Row("paper-cifar100-vmcr2", recipe("cifar100-vmcr2-paper"))
    paper = table.HEADER.index("the paper: accuracy, training ΔR")
    assert table.row_of(literal, [])[paper] == "0.5872, 218"
    shorter = finals.Row("tuned-cifar100-preact-ce", recipe("cifar100-preact-ce", epochs=300))
    assert table.row_of(shorter, [])[paper] == "0.7146 (2000 epochs)"


def test_the_short_table_has_the_paper_s_rows_beside_ours(
    finals: ModuleType, table: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [
        finals.Row("tuned-mnist-ce", recipe("mnist-ce"), (0, 1)),
        finals.Row("paper-mnist-ce", recipe("mnist-ce-paper")),
        finals.Row("tuned-mnist-vmcr2", recipe("mnist-vmcr2"), (0, 1)),
        finals.Row("paper-mnist-vmcr2", recipe("mnist-vmcr2-paper")),
    ]
    monkeypatch.setattr(table, "rows", lambda: {row.name: row for row in both})

    def write(row: Any, seed: int, **summary: Any) -> None:
        content = {"seed": seed, "settings": finals.settings_of(row.of(seed)), "summary": summary}
        content |= {"curve": [[8.0], [11.0]], "curve_has": ["batch_delta_r"]}
        (tmp_path / f"{row.name}-seed{seed}.json").write_text(json.dumps(content))

    rates = {"train_delta_r": 12.0, "batch_delta_r": 10.0}
    write(both[0], 0, test_accuracy=0.1, head_accuracy=0.8, **rates)
    write(both[0], 1, test_accuracy=0.1, head_accuracy=0.9, **rates)
    write(both[1], 0, test_accuracy=0.1, head_accuracy=0.7, **rates)
    write(both[3], 0, failed="training broke in epoch 3")
    assert table.short(tmp_path).splitlines()[2:] == [
        "| MNIST, V-MCR² | 0.9788, 44 (2000 epochs) | broke: training broke in epoch 3 | not run yet |  |  | 200 | – |",
        "| MNIST, cross-entropy, its head | 0.9738 (2000 epochs) | 0.7000, 11 | 0.8500 ± 0.0707 "
        "| 11.0 ± 0.0 | 12.0 ± 0.0 | 100 | 2 |",
    ]


def test_the_marks_keep_the_rest_of_the_page(table: ModuleType) -> None:
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    assert table.between_marks(page, "new") == f"before\n{table.BEGIN}\nnew\n{table.END}\nafter\n"
    with pytest.raises(SystemExit, match="marks"):
        table.between_marks("a page without marks", "new")


def test_the_page_says_what_the_results_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (LEDGER.parent, LEDGER):
        monkeypatch.syspath_prepend(folder)
    table = importlib.import_module("table")
    assert len(table.PAGES) == 2
    for path, content in table.PAGES.items():
        page = path.read_text()
        assert table.between_marks(page, content()) == page, "run experiments/ledger/table.py"
    names = {f"{row.name}-seed{seed}" for row in table.rows().values() for seed in row.seeds}
    assert {path.stem for path in table.RESULTS.glob("*.json")} <= names, "a result of no row"


def test_the_figures_show_seed_0_of_what_ended(
    finals: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = importlib.import_module("figures")
    assert figures.convergence(tmp_path) is None
    assert figures.heat_maps(tmp_path) is None

    def write(name: str, **content: Any) -> None:
        curve = {"curve": [[1, 0.5, 10.0], [2, 1.0, 20.0]], "curve_has": ["epoch", "seconds", "batch_delta_r"]}
        settings = finals.settings_of(figures.rows()[name[: name.index("-seed")]].of(int(name[-1])))
        known = {"summary": {}, "cosines": [[100]], "settings": settings}
        (tmp_path / f"{name}.json").write_text(json.dumps(known | curve | content))

    write("tuned-cifar100-vmcr2-seed0")
    write("tuned-cifar100-vmcr2-seed1")
    write("tuned-mnist-vmcr2-seed0", settings={"lr": 7.0})  # of a recipe that has changed since
    write("paper-cifar100-mcr2-seed0", cosines=[])
    write("paper-mnist-vmcr2-seed0", summary={"failed": "training broke"})
    drawn = figures.convergence(tmp_path)
    (axis,) = drawn.axes
    assert axis.get_title() == "CIFAR-100, d = 500"
    shown = {line.get_label(): (line.get_linestyle(), list(line.get_ydata())) for line in axis.get_lines()}
    assert shown == {"V-MCR², tuned": ("-", [10.0, 20.0]), "MCR², paper": ("--", [10.0, 20.0])}
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == list(shown)
    (axis,) = figures.heat_maps(tmp_path).axes
    assert (axis.get_title(), axis.get_ylabel()) == ("V-MCR²", "CIFAR-100, d = 500\ntuned")
    assert axis.get_images()[0].get_array().tolist() == [[100]]
    write("paper-cifar100-d100-mcr2-seed0", cosines=[[40]])
    cells = figures.heat_maps(tmp_path).axes
    assert [cell.get_title() for cell in cells] == ["V-MCR²", "MCR²", "", ""]
    assert [cell.get_ylabel() for cell in cells] == ["CIFAR-100, d = 500\ntuned", "", "CIFAR-100, d = 100\npaper", ""]
    shown = [[image.get_array().tolist() for image in cell.get_images()] for cell in cells]
    assert shown == [[[[100]]], [], [], [[[40]]]], "an objective has its column, also where others were not run"
    monkeypatch.setattr(sys, "argv", ["figures.py", "--out", str(tmp_path / "out"), "--results", str(tmp_path)])
    figures.main()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"ledger-figure1.png", "ledger-figure2.png"}
