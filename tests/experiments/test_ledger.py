"""The ledger: each run is made once, continues where it was cut off, and its tables say what the results say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import parsed
from doc_blocks import ROOT, blocks

from experiments._drawing import draw_all
from experiments._study import between_marks
from experiments.ledger import figures, finals, table
from experiments.ledger.rows import RESULTS, Row, result_of, rows
from vmcr2.runs import fit, recipe
from vmcr2.sweep import Outcome, sole_user

SETTINGS: dict[str, Any] = {"epochs": 2, "hidden": (32,)}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Row:
    """The ledger has one row, of two tiny runs on digits."""
    row = Row("tuned-tiny", recipe("digits", **SETTINGS), (0, 1))
    put(monkeypatch, row)
    return row


def put(monkeypatch: pytest.MonkeyPatch, *given: Row) -> None:
    for module in (finals, table):
        monkeypatch.setattr(module, "rows", lambda: {row.name: row for row in given})


def command(folder: Path, *arguments: str) -> None:
    finals.main([*arguments, "--results", str(folder / "results"), "--runs", str(folder / "runs")])


def test_a_run_is_written_once_with_all_that_makes_it_again(
    tiny: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(tmp_path, "tuned-tiny")
    result = json.loads((tmp_path / "results" / "tuned-tiny-seed1.json").read_text())
    alone = fit(recipe("digits", **SETTINGS, seed=1), out=tmp_path / "alone").summary
    for name in ("test_accuracy", "train_delta_r", "batch_delta_r"):
        assert result["summary"][name] == pytest.approx(alone[name], rel=1e-4)
    assert result["summary"]["test_images"] == 360, "the finals read the test images"
    assert result["command"] == "python -m experiments.ledger.finals tuned-tiny --seed 1 --again"
    assert (result["settings"]["lr"], result["settings"]["seed"]) == (0.3, 1)
    assert result["manifest"]["torch"]
    assert [point[0] for point in result["curve"]] == [1, 2]
    assert result["curve"][-1][4] == pytest.approx(result["curve"][-1][2] - result["curve"][-1][3], abs=2e-4)
    (cosines,) = {len(line) for line in result["cosines"]}
    assert len(result["cosines"]) == cosines == 100
    assert all(line[i] == 100 for i, line in enumerate(result["cosines"]))
    assert "2 runs" in capsys.readouterr().out
    command(tmp_path, "--all")
    assert "0 runs" in capsys.readouterr().out


def test_a_result_of_other_settings_is_made_again(
    tiny: Row,
    in_this_process: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command(tmp_path, "tuned-tiny", "--seed", "0")
    assert result_of(tmp_path / "results", tiny, 0) is not None
    older = json.loads((tmp_path / "results" / "tuned-tiny-seed0.json").read_text())
    changed = Row("tuned-tiny", recipe("digits", **SETTINGS, lr=0.2), (0,))
    put(monkeypatch, changed)
    assert result_of(tmp_path / "results", changed, 0) is None
    (before,) = (tmp_path / "runs").glob("tuned-tiny-*")
    metrics = (before / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    command(tmp_path, "tuned-tiny")
    assert "1 runs" in capsys.readouterr().out
    assert json.loads((tmp_path / "results" / "tuned-tiny-seed0.json").read_text())["settings"]["lr"] == 0.2
    (aside,) = (tmp_path / "results" / "earlier").iterdir()
    assert aside.name.startswith("tuned-tiny-seed0-")
    assert json.loads(aside.read_text()) == older, "the older result is moved, not overwritten"
    assert len(list((tmp_path / "runs").glob("tuned-tiny-*"))) == 2, "the old run's folder is not overwritten"
    assert (before / "metrics.jsonl").read_bytes() == metrics


def test_a_result_of_an_older_version_counts_unless_it_used_what_is_gone(tiny: Row, tmp_path: Path) -> None:
    def known(**settings: Any) -> bool:
        result(tmp_path, tiny, 0, {}, **settings)
        return result_of(tmp_path / "results", tiny, 0) is not None

    assert known()
    assert known(sharpness=0.0, keep_trace=False, decay_power=1.0, mu_end=None), "retired, at their defaults"
    assert known(device="cuda", log_every=7), "nothing that decides the run"
    assert not known(weight_decay=0.1)
    assert not known(sharpness=0.05)
    written = json.loads((tmp_path / "results" / "tuned-tiny-seed0.json").read_text())
    assert table.what_differed(written) == "sharpness 0.05"


def test_again_makes_what_has_a_result_beside_it(
    tiny: Row,
    in_this_process: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(finals, "RESULTS", tmp_path / "results")
    finals.main(["tuned-tiny", "--seed", "0"])
    path = tmp_path / "results" / "tuned-tiny-seed0.json"
    of_the_ledger = path.read_bytes()
    assert "the ledger's" not in capsys.readouterr().out
    finals.main(["tuned-tiny", "--seed", "0"])
    assert "0 runs: all have results in" in capsys.readouterr().out
    finals.main(["tuned-tiny", "--seed", "0", "--again"])
    first, second = [line for line in capsys.readouterr().out.splitlines() if "ΔR" in line]
    accuracy = json.loads(of_the_ledger)["summary"]["test_accuracy"]
    assert f"tuned-tiny-seed0: {accuracy:.4f}" in first, "the same seed on the same machine"
    assert second.strip().startswith(f"the ledger's: {accuracy:.4f}")
    assert path.read_bytes() == of_the_ledger
    assert (tmp_path / "runs" / "again" / "results" / path.name).exists()
    assert list((tmp_path / "runs" / "again").glob("tuned-tiny-seed0-*/summary.json")), "a run of its own"
    finals.main(["tuned-tiny", "--seed", "0", "--again"])
    assert "give another --results" in capsys.readouterr().out


def test_what_broke_is_a_result_and_what_was_lost_is_none(
    tiny: Row,
    in_this_process: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[bool] = []

    class Breaking(finals.Trainer):
        """Seed 0 breaks after its training, and seed 1 is lost."""

        def __call__(self, task: finals.Task, told_to_stop: Callable[[], bool]) -> Outcome:
            if task.seed == 1:
                return Outcome(lost="ZeroDivisionError: division by zero", trace="Traceback …")
            made = super().__call__(task, lambda: asked.append(told_to_stop()) or False)
            return Outcome(made.figures | {"failed": "training broke in epoch 2"})

    monkeypatch.setattr(finals, "Trainer", Breaking)
    with pytest.raises(SystemExit, match="1 of 2 runs ended without a result"):
        command(tmp_path, "tuned-tiny", "tuned-tiny")  # a row named twice is made once
    assert asked, "a run asks whether it is to stop"
    written = json.loads((tmp_path / "results" / "tuned-tiny-seed0.json").read_text())
    assert written["summary"] == {"failed": "training broke in epoch 2"}
    assert written["cosines"] == []
    said = capsys.readouterr().out
    assert "tuned-tiny-seed0: failed, training broke in epoch 2" in said
    assert "lost: tuned-tiny-seed1: ZeroDivisionError: division by zero\nTraceback …" in said
    assert not (tmp_path / "results" / "tuned-tiny-seed1.json").exists()


def test_settings_that_decide_nothing_have_a_folder_of_their_own(tiny: Row, tmp_path: Path) -> None:
    """Or a finished run would be taken for one with other settings, which its result says it has."""
    other = Row(tiny.name, tiny.config.replace(eval_every=1), tiny.seeds)
    assert finals.task_of(tiny, 0, tmp_path) == finals.task_of(tiny, 0, tmp_path)
    assert len({finals.task_of(row, seed, tmp_path).folder for row in (tiny, other) for seed in (0, 1)}) == 4


def test_two_at_once_do_not_share_a_folder(tiny: Row, in_this_process: None, tmp_path: Path) -> None:
    with sole_user(tmp_path / "runs"), pytest.raises(SystemExit):
        command(tmp_path, "tuned-tiny")
    assert not list((tmp_path / "results").iterdir())


def test_rows_are_named_or_all(tiny: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ((), ("tuned-tiny", "--all")):
        with pytest.raises(SystemExit):
            command(tmp_path, *arguments)
        assert "name rows, or --all: tuned-tiny" in capsys.readouterr().err


def result(folder: Path, row: Row, seed: int, summary: dict[str, Any], **settings: Any) -> None:
    content = {
        "row": row.name,
        "seed": seed,
        "settings": row.of(seed).flat() | settings,
        "manifest": {"device": "NVIDIA H200", "git_commit": "abcdef0123"},
        "summary": summary,
        "curve": [[1, 5.0], [2, 47.0 + seed]],
        "curve_has": ["epoch", "batch_delta_r"],
    }
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results" / f"{row.named(seed)}.json").write_text(json.dumps(content))


def test_the_table_has_means_deviations_and_what_broke(tiny: Row, tmp_path: Path) -> None:
    empty = table.ledger(tmp_path / "results").splitlines()[-1]
    assert "not run yet" in empty
    assert "`tuned-tiny` | 2 |" in empty
    figures = {"test_accuracy": 0.5, "test_class_mean_accuracy": 0.45, "train_delta_r": 40.0}
    figures |= {"batch_delta_r": 41.0, "seconds": 10.4}
    result(tmp_path, tiny, 0, figures)
    result(tmp_path, tiny, 1, figures | {"test_accuracy": 0.6, "head_accuracy": 0.7})
    assert table.ledger(tmp_path / "results").splitlines()[-1] == (
        "| `tuned-tiny` | 2 | 0, 1 | 12 | 0.5500 ± 0.0707 | 0.4500 ± 0.0000 | 0.7000 "
        "| 40.0 ± 0.0 | 41.0 ± 0.0 | 47.5 ± 0.7 | – | 10 | H200 | abcdef0 |"
    )
    result(tmp_path, tiny, 1, {"failed": "training broke"})
    assert "| 0, 1 (1 broke) | 12 | 0.5000 | 0.4500 | – | 40.0 | 41.0 | 47.0 |" in table.ledger(tmp_path / "results")


def test_results_of_earlier_settings_are_in_a_table_of_their_own(tiny: Row, tmp_path: Path) -> None:
    figures = {"test_accuracy": 0.5, "head_accuracy": 0.6, "train_delta_r": 40.0, "batch_delta_r": 41.0, "seconds": 9.6}
    for seed in (0, 1):
        result(tmp_path, tiny, seed, figures)
        path = tmp_path / "results" / f"tuned-tiny-seed{seed}.json"
        now = json.loads(path.read_text())
        result(tmp_path, tiny, seed, figures, lr=7.0, epochs=3)
        finals.keep(tmp_path / "results", path.stem, now | {"summary": figures | {"test_accuracy": 0.9}})
    above, _, below = table.ledger(tmp_path / "results").partition("Results of earlier settings of these rows:")
    assert "| 0.9000 ± 0.0000 |" in above
    (cells,) = below.strip().splitlines()[2:]
    name, differed, *rest = cells.strip("| ").split(" | ")
    assert (name, set(differed.split(", "))) == ("`tuned-tiny`", {"lr 7.0", "epochs 3"})
    assert rest == [
        *("0, 1", "0.5000 ± 0.0000", "0.6000 ± 0.0000", "40.0 ± 0.0", "41.0 ± 0.0"),
        *("10", "abcdef0"),
    ]


def test_the_paper_s_figures_stand_beside_a_row() -> None:
    literal = Row("paper-cifar100-vmcr2", recipe("cifar100-vmcr2-paper"))
    paper = table.HEADER.index("the paper: accuracy, training ΔR")
    assert table.row_of(literal, [])[paper] == "0.5872, 218"
    shorter = Row("tuned-cifar100-preact-ce", recipe("cifar100-preact-ce", epochs=300))
    assert table.row_of(shorter, [])[paper] == "0.7146 (2000 epochs)"


def test_the_short_table_has_the_paper_s_rows_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [
        Row("tuned-mnist-ce", recipe("mnist-ce"), (0, 1)),
        Row("paper-mnist-ce", recipe("mnist-ce-paper")),
        Row("tuned-mnist-vmcr2", recipe("mnist-vmcr2"), (0, 1)),
        Row("paper-mnist-vmcr2", recipe("mnist-vmcr2-paper")),
    ]
    put(monkeypatch, *both)
    rates = {"train_delta_r": 12.0, "batch_delta_r": 10.0}
    result(tmp_path, both[0], 0, {"test_accuracy": 0.1, "head_accuracy": 0.8, **rates})
    result(tmp_path, both[0], 1, {"test_accuracy": 0.1, "head_accuracy": 0.9, **rates})
    result(tmp_path, both[1], 0, {"test_accuracy": 0.1, "head_accuracy": 0.7, **rates})
    result(tmp_path, both[3], 0, {"failed": "training broke in epoch 3"})
    assert table.short(tmp_path / "results").splitlines()[2:] == [
        "| MNIST, V-MCR² | 0.9788, 44 (2000 epochs) | broke: training broke in epoch 3 | not run yet |  |  | 200 | – |",
        "| MNIST, cross-entropy, its head | 0.9738 (2000 epochs) | 0.7000, 47 | 0.8500 ± 0.0707 "
        "| 47.5 ± 0.7 | 12.0 ± 0.0 | 100 | 2 |",
    ]


def test_the_short_table_has_the_last_earlier_results_of_a_row_without_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Row("tuned-mnist-ce", recipe("mnist-ce"), (0,))
    put(monkeypatch, row, Row("tuned-mnist-vmcr2", recipe("mnist-vmcr2")))
    figures = {"test_accuracy": 0.1, "head_accuracy": 0.8, "train_delta_r": 12.0, "batch_delta_r": 10.0}
    (tmp_path / "results" / "earlier").mkdir(parents=True)
    for day, (accuracy, epochs) in enumerate([(0.7, 10), (0.8, 20)]):
        result(tmp_path, row, 0, figures | {"head_accuracy": accuracy}, epochs=epochs)
        path = tmp_path / "results" / "tuned-mnist-ce-seed0.json"
        then = json.loads(path.read_text())
        then["manifest"]["started"] = f"2026-11-0{day + 1}"
        (tmp_path / "results" / "earlier" / f"{path.stem}-{day}.json").write_text(json.dumps(then))
        path.unlink()
    assert (
        table.short(tmp_path / "results")
        .splitlines()[-1]
        .endswith("| 0.8000 (earlier settings) | 47.0 | 12.0 | 20 | 1 |")
    )


def test_the_marks_keep_the_rest_of_the_page() -> None:
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    assert between_marks(page, table.BEGIN, table.END, "new") == f"before\n{table.BEGIN}\nnew\n{table.END}\nafter\n"
    with pytest.raises(SystemExit, match="marks"):
        between_marks("a page without marks", table.BEGIN, table.END, "new")


def test_the_pages_say_what_the_results_say() -> None:
    assert len(table.PAGES) == 2
    for path, content in table.PAGES.items():
        page = path.read_text()
        assert between_marks(page, table.BEGIN, table.END, content()) == page, "run python -m experiments.ledger.table"
    names = {row.named(seed) for row in rows().values() for seed in row.seeds}
    kept = {path.stem for path in RESULTS.glob("*.json")}
    assert kept <= names, "a result of no row"
    current = {row.named(seed) for row in rows().values() for seed in row.seeds if result_of(RESULTS, row, seed)}
    assert kept == current, "a result of earlier settings stands in earlier/"


def test_the_figures_show_seed_0_of_what_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def write(name: str, seed: int, **content: Any) -> None:
        curve = {"curve": [[1, 0.5, 10.0], [2, 1.0, 20.0]], "curve_has": ["epoch", "seconds", "batch_delta_r"]}
        row = rows()[name]
        known = {"summary": {}, "cosines": [[100]], "settings": row.of(seed).flat()}
        (tmp_path / f"{row.named(seed)}.json").write_text(json.dumps(known | curve | content))

    write("tuned-cifar100-vmcr2", 0)
    write("tuned-cifar100-vmcr2", 1)
    write("tuned-mnist-vmcr2", 0, settings=rows()["tuned-mnist-vmcr2"].of(0).flat() | {"lr": 7.0})
    write("paper-cifar100-mcr2", 0, cosines=[])
    write("paper-mnist-vmcr2", 0, summary={"failed": "training broke"})
    drawn = figures.convergence(tmp_path)
    (axis,) = drawn.axes
    assert axis.get_title() == "CIFAR-100, d = 500"
    shown = {line.get_label(): (line.get_linestyle(), list(line.get_ydata())) for line in axis.get_lines()}
    assert shown == {"V-MCR², tuned": ("-", [10.0, 20.0]), "MCR², paper": ("--", [10.0, 20.0])}
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == list(shown)
    (axis,) = figures.heat_maps(tmp_path).axes
    assert (axis.get_title(), axis.get_ylabel()) == ("V-MCR², tuned", "CIFAR-100, d = 500")
    assert axis.get_images()[0].get_array().tolist() == [[100]]
    write("paper-cifar100-d100-mcr2", 0, cosines=[[40]])
    cells = figures.heat_maps(tmp_path).axes
    assert [cell.get_title() for cell in cells] == ["V-MCR², tuned", "MCR², paper", "", ""]
    assert [cell.get_ylabel() for cell in cells] == ["CIFAR-100, d = 500", "", "CIFAR-100, d = 100", ""]
    shown = [[image.get_array().tolist() for image in cell.get_images()] for cell in cells]
    assert shown == [[[[100]]], [], [], [[[40]]]], "an objective has its column, also where others were not run"
    for place in ("mnist", "tiny-imagenet"):
        write(f"paper-{place}-mcr2", 0)
    titles = [axis.get_title() for axis in figures.convergence(tmp_path).axes]
    places = ("mnist", "cifar100", "cifar100-d100", "tiny-imagenet")
    assert titles == [figures.PLACES[place] for place in places], "three in a line, and no empty axes in the last"
    (tmp_path / "earlier").mkdir()
    then = json.loads((tmp_path / "tuned-mnist-vmcr2-seed0.json").read_text())
    then |= {"row": "tuned-mnist-vmcr2", "seed": 0, "manifest": {"started": "2026-11-01"}}
    (tmp_path / "earlier" / "tuned-mnist-vmcr2-seed0-7.json").write_text(json.dumps(then))
    first = figures.convergence(tmp_path).axes[0]
    assert {line.get_label() for line in first.get_lines()} == {"MCR², paper", "V-MCR², tuned"}, "as it was before"
    draw_all(None, figures.PICTURES, ["--out", str(tmp_path / "out")])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"ledger-figure1.png", "ledger-figure2.png"}


def test_the_command_of_the_composed_row_makes_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page shows it, and nobody runs it here."""
    (command,) = [block.code for block in blocks(ROOT / "docs" / "tuning.md", "sh") if "ce+mcr2" in block.code]
    row = rows()["ahead-cifar100-ce+mcr2"]
    assert parsed(command, monkeypatch).deciding() == row.of(0).deciding()
