"""The finished search: every line can be read without the code that made it, and the pictures show the lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from experiments._drawing import draw_all
from experiments.search import __main__ as reader, draw, read, studies

ROOT = Path(__file__).parents[2]


def test_every_line_says_what_was_run_and_what_came_out() -> None:
    lines = [(name, line) for name in studies() for line in read(name)]
    assert len(lines) == 318
    for name, line in lines:
        assert {"data", "model", "objective", "lr", "epochs", "seed"} <= set(line["settings"]), name
        assert line["changes"].items() <= line["settings"].items(), name
        assert 0 < line["holdout_accuracy"] < 1, name
        assert line["train_delta_r"] > -1e-3, name
        assert name == "stand-in" or len(line["git_commit"]) >= 7, name


def test_the_reader_prints_a_study_best_first(capsys: pytest.CaptureFixture[str]) -> None:
    reader.main(["rest", "ce"])
    text = capsys.readouterr().out
    assert text.startswith("rest, 6 runs\n  nearest subspace 0.5350, class mean 0.5300")
    assert text.splitlines()[1].endswith("ΔR 201.8, trace 8.1, 64 s: schedule=linear")
    heads = [float(value) for value in re.findall(r"head (\S+),", text)]
    assert len(heads) == 9
    assert heads == sorted(heads, reverse=True), "cross-entropy is compared by its head"
    reader.main([])
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(studies())
    with pytest.raises(SystemExit):
        reader.main(["rest", "rets"])
    assert "there is no study 'rets'; there are average, ce" in capsys.readouterr().err


def points(axis: Any) -> dict[str, list[Any]]:
    return {line.get_label(): list(zip(*map(list, line.get_data()), strict=True)) for line in axis.get_lines()}


def test_rates_are_two_grids_by_lr() -> None:
    ours, theirs = map(points, draw.rates().axes)
    assert {name: len(series) for name, series in ours.items()} == {"lr 0.1": 3, "lr 0.3": 3, "lr 1": 3}
    assert ours["lr 0.3"][0] == (pytest.approx(1.5e-4), pytest.approx(0.526))
    assert {name: len(series) for name, series in theirs.items()} == {"lr 0.3": 3, "lr 1": 3, "lr 2": 4}
    assert (pytest.approx(1e-3), pytest.approx(0.5806)) in theirs["lr 2"]


def test_forces_and_traces_are_in_order_of_their_setting() -> None:
    left, right = draw.forces().axes
    (accuracy,), (rate,) = points(left).values(), points(right).values()
    assert [x for x, _ in accuracy] == [x for x, _ in rate] == [0.0, 0.03, 0.05, 0.1, 0.2]
    assert [round(y, 3) for _, y in accuracy] == [0.408, 0.528, 0.543, 0.526, 0.508]
    left, right = draw.trace().axes
    assert [(x, round(y, 3)) for x, y in points(left)["held at this trace"]] == [
        *((1.0, 0.121), (2.0, 0.188), (4.0, 0.333)),
        *((8.0, 0.4), (16.0, 0.468)),
    ]
    assert [round(y) for _, y in points(right)["free codes (trace 7.9)"]] == [154, 154]


def test_the_gap_has_every_run_on_cifar_at_d_500() -> None:
    (axis,) = draw.gap().axes
    assert {group.get_label(): len(group.get_offsets()) for group in axis.collections} == {
        "V-MCR², up to 600 epochs": 107,
        "V-MCR², 1000 or 2000 epochs": 16,
        "cross-entropy (hold-out: its head)": 24,
        "exact MCR²": 15,
    }


def test_details_and_the_longest_show_the_best() -> None:
    left, right = draw.details().axes
    names = [label.get_text() for label in left.get_yticklabels()]
    assert (len(names), names[-1]) == (13, "crop padding 4")
    start = names.index("the start")
    assert (left.patches[start].get_width(), right.patches[start].get_width()) == pytest.approx((0.456, 154), rel=1e-2)
    assert {bar.get_facecolor() for bar in left.patches} > {left.patches[start].get_facecolor()}
    left, right = draw.long().axes
    best, *_ = points(left)
    assert best == "0.612: lr 0.1, weight decay 0.003, β 0.07, averaged weights 0.999"
    assert points(left)[best][-1] == (2000, pytest.approx(0.6122))
    assert len(points(left)) == len(right.get_lines()) == 3


def test_the_pictures_are_small_the_same_each_time_and_on_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("first", "again"):
        draw_all(None, draw.PICTURES, ["--out", str(tmp_path / folder)])
    assert capsys.readouterr().out.split()[:2] == [f"{tmp_path}/first/{name}.png" for name in list(draw.PICTURES)[:2]]
    pages = "".join((ROOT / "docs" / page).read_text() for page in ("tuning.md", "tuning-log.md"))
    for name in draw.PICTURES:
        picture = tmp_path / "first" / f"{name}.png"
        assert 5_000 < picture.stat().st_size < 150_000
        assert Image.open(picture).width == 1200
        assert picture.read_bytes() == (tmp_path / "again" / f"{name}.png").read_bytes()
        assert f"(images/{name}.png)" in pages
    assert {path.stem for path in (ROOT / "docs" / "images").glob("tuning-*.png")} == set(draw.PICTURES)
