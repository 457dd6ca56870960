"""The search's pictures show what the lines say, and leave out what is not there."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image

SEARCH = Path(__file__).parents[2] / "experiments" / "search"
NAMES = ["recipe-rates", "recipe-forces", "recipe-gap", "recipe-trace", "recipe-details", "recipe-long"]


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(SEARCH)
    return importlib.import_module("draw")


def write(draw: ModuleType, folder: Path, study: str, **called: Any) -> None:
    """Made-up lines of a study's runs, «called» or «called|variant»: their hold-out accuracy, or several figures."""
    known = {(t.called, t.variant): t for t in draw.studies()[study]}
    made = []
    for name, figures in called.items():
        attempt = known[tuple(name.split("|")) if "|" in name else (name, "")]  # type: ignore[index]
        config = attempt.config
        line = {"id": attempt.id, "recipe": config.recipe, "epochs": config.epochs, "train_accuracy": 0.1}
        line["called"] = attempt.called
        made.append(line | (figures if isinstance(figures, dict) else {"holdout_accuracy": figures}))
    (folder / f"{study}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in made))


def points(axis: Any) -> dict[str, list[Any]]:
    return {line.get_label(): list(zip(*map(list, line.get_data()), strict=True)) for line in axis.get_lines()}


def both(accuracy: float, rate: float) -> dict[str, Any]:
    return {"holdout_accuracy": accuracy, "train_delta_r": rate}


def test_rates_are_the_two_grids_by_lr(draw: ModuleType, tmp_path: Path) -> None:
    rates = {"lr=0.3 weight_decay=0.002": 0.4, "lr=0.3 weight_decay=0.0005": 0.5, "lr=1.0 weight_decay=0.0005": 0.3}
    others = {"loss_scale=0.01": 0.9, "lr=0.1 weight_decay=0.002": {"failed": "NaN"}}
    write(draw, tmp_path, "rates", **rates, **others)
    write(draw, tmp_path, "ce", **{"lr=1.0 weight_decay=0.001": {"holdout_accuracy": 0.2, "head_accuracy": 0.6}})
    ours, theirs = draw.rates(tmp_path).axes
    shown = points(ours)
    assert list(shown) == ["lr 0.3", "lr 1"]
    assert shown["lr 0.3"] == [(pytest.approx(1.5e-4), 0.5), (pytest.approx(6e-4), 0.4)]
    assert shown["lr 1"] == [(pytest.approx(5e-4), 0.3)]
    assert points(theirs) == {"lr 1": [(pytest.approx(1e-3), 0.6)]}
    assert ours.get_xscale() == theirs.get_xscale() == "log"


def test_forces_take_the_start_from_the_rates(draw: ModuleType, tmp_path: Path) -> None:
    forces = {"batch_expansion=0.2": both(0.5, 190.0), "batch_expansion=0.0": both(0.4, 60.0)}
    write(draw, tmp_path, "forces", **forces, **{"weight=10.0": both(0.9, 9.0)})
    write(draw, tmp_path, "rates", **{"lr=0.3 weight_decay=0.0005": both(0.6, 200.0)})
    left, right = draw.forces(tmp_path).axes
    assert list(points(left).values()) == [[(0.0, 0.4), (0.1, 0.6), (0.2, 0.5)]]
    assert list(points(right).values()) == [[(0.0, 60.0), (0.1, 200.0), (0.2, 190.0)]]


def test_the_three_best_of_the_longest_end_at_their_last_figures(draw: ModuleType, tmp_path: Path) -> None:
    names = [attempt.called for attempt in draw.studies()["longest"][:4]]
    curves = {
        name: both(accuracy, 200.0) | {"curve": [[200, 0.1, 50.0, 190.0]], "changes": {"lr": accuracy}}
        for name, accuracy in zip(names, (0.4, 0.2, 0.5, 0.3), strict=True)
    }
    write(draw, tmp_path, "longest", **curves)
    write(draw, tmp_path, "long", **{"lr=1.0": both(0.9, 1.0)})  # of before curves were kept
    left, right = draw.long(tmp_path).axes
    assert list(points(left)) == ["0.500: lr 0.5", "0.400: lr 0.4", "0.300: lr 0.3"]
    assert points(left)["0.500: lr 0.5"] == [(200, 0.1), (2000, 0.5)]
    assert [list(line.get_ydata()) for line in right.get_lines()] == [[50.0, 200.0]] * 3


def test_the_gap_has_every_run_on_cifar_at_d_500(draw: ModuleType, tmp_path: Path) -> None:
    write(draw, tmp_path, "rest", **{"momentum=0.95": {"train_accuracy": 0.7, "holdout_accuracy": 0.5}})
    write(draw, tmp_path, "why", **{"the start|attract": 0.05, "codes=simplex": {"failed": "NaN"}})
    write(draw, tmp_path, "long", **{"lr=1.0": {"train_accuracy": 0.8, "holdout_accuracy": 0.6}})
    ce = {"train_accuracy": 0.9, "holdout_accuracy": 0.5, "head_accuracy": 0.55}
    write(draw, tmp_path, "ce-long", **{"lr=2.0 epochs=600": ce})
    write(draw, tmp_path, "mnist", **{"the start": 0.99})
    write(draw, tmp_path, "narrow", **{"atoms_per_class=1": 0.5})
    (axis,) = draw.gap(tmp_path).axes
    shown = {group.get_label(): group.get_offsets().tolist() for group in axis.collections}
    assert shown == {
        "V-MCR², up to 600 epochs": [[0.7, 0.5], [0.1, 0.05]],
        "V-MCR², 1000 or 2000 epochs": [[0.8, 0.6]],
        "cross-entropy (hold-out: its head)": [[0.9, 0.55]],
    }
    assert points(axis) == {"no gap": [(0, 0), (1, 1)]}
    write(draw, tmp_path, "mcr2", **{"seed=3": 0.02})
    (axis,) = draw.gap(tmp_path).axes
    assert axis.collections[-1].get_label() == "exact MCR²"


def test_the_trace_has_free_codes_beside_it_where_they_are_known(draw: ModuleType, tmp_path: Path) -> None:
    held = {"codes=rescaled codes_trace=4.0": both(0.3, 120.0), "codes=rescaled": both(0.1, 60.0)}
    others = {"codes=rescaled weight=160.0": both(0.9, 9.0), "codes=rescaled codes_trace=8.0|attract": both(0.9, 9.0)}
    write(draw, tmp_path, "why", **held, **others)
    left, right = draw.trace(tmp_path).axes
    assert points(left) == {"held at this trace": [(1.0, 0.1), (4.0, 0.3)]}
    assert points(right) == {"held at this trace": [(1.0, 60.0), (4.0, 120.0)]}
    free = both(0.45, 170.0) | {"codes_trace": 8.04}
    write(draw, tmp_path, "details", **{"the start": free, "debias=False": both(0.9, 9.0)})
    left, right = draw.trace(tmp_path).axes
    for axis, height in ((left, 0.45), (right, 170.0)):
        assert [y for _, y in points(axis)["free codes (trace 8.0)"]] == [height, height]
        assert axis.get_ylim()[1] > height


def test_the_details_are_bars_in_order_with_the_start_in_its_own_colour(draw: ModuleType, tmp_path: Path) -> None:
    assert draw.details(tmp_path) is None
    figures = {"the start": both(0.4, 150.0), "latch_every=10": both(0.5, 180.0), "atoms_per_class=3": both(0.3, 190.0)}
    write(draw, tmp_path, "details", **figures)
    left, right = draw.details(tmp_path).axes
    assert [label.get_text() for label in left.get_yticklabels()] == [
        "atoms per class 3",
        "the start",
        "latch every 10",
    ]
    assert [bar.get_width() for bar in left.patches] == [0.3, 0.4, 0.5]
    assert [bar.get_width() for bar in right.patches] == [190.0, 150.0, 180.0]
    colours = [bar.get_facecolor() for bar in left.patches]
    assert colours[0] == colours[2] != colours[1]


def test_the_script_writes_small_pictures_and_says_what_is_empty(
    draw: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def made(out: Path, lines: Path) -> str:
        monkeypatch.setattr(sys, "argv", ["draw.py", "--out", str(out), "--lines", str(lines)])
        draw.main()
        return capsys.readouterr().out

    said = made(tmp_path / "first", SEARCH)
    assert said.split() == [f"{tmp_path}/first/{name}.png" for name in NAMES]
    made(tmp_path / "again", SEARCH)
    for name in NAMES:
        picture = tmp_path / "first" / f"{name}.png"
        assert 5_000 < picture.stat().st_size < 150_000
        assert Image.open(picture).width == 1200
        assert picture.read_bytes() == (tmp_path / "again" / f"{name}.png").read_bytes()
    lone = tmp_path / "lone"
    lone.mkdir()
    write(draw, lone, "rates", **{"warmup_epochs=10.0": 0.5})
    said = made(tmp_path / "second", lone)
    assert [path.name for path in (tmp_path / "second").iterdir()] == ["recipe-gap.png"]
    assert said.count("no lines yet, not drawn") == 5
    assert "recipe-rates: no lines yet" in said
