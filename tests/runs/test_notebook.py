"""What a notebook shows of a run: short, escaped, without colours of its own."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from drawn_runs import CLASSES, drawn_run, samples

from vmcr2.runs import Run

EVIL = '<script>alert("x")</script>'


class Cells(HTMLParser):
    """The texts of a table's rows, and every tag."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    @property
    def facts(self) -> dict[str, str]:
        return {row[0]: row[1] for row in self.rows}


def shown(run: Run) -> dict[str, str]:
    return Cells(run._repr_html_()).facts


def test_a_run_says_what_it_is_and_how_good(tmp_path: Path) -> None:
    run = drawn_run(tmp_path / "mine", (6,), objective="vmcr2")
    figures = {"train_delta_r": 2.5, "epochs": 7, "seconds": 3.25, "test_accuracy": 0.75, "test_images": 1200}
    found = shown(replace(run, summary=run.summary | figures))
    assert found["accuracy"] == "0.7500 by nearest subspace, on 1,200 test samples"
    assert found["ΔR"].startswith("2.50 of at most ")
    assert found["objective"] == "V-MCR²"
    assert found["data"].endswith("4 classes: class 0, class 1, class 2, class 3")
    assert found["training"] == "7 epochs in 3.2 s, seed 0"
    assert found["folder"].startswith(str(tmp_path / "mine"))  # the note stands behind it
    assert "calibrated on 60 samples" in found["probabilities"]
    assert "warning" not in found
    assert "added classes" not in found


def test_a_head_a_hold_out_and_no_calibration(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, (6,), objective="ce", calibrated=False)
    figures = {"readout": "head", "holdout_accuracy": 0.5, "head_accuracy": 0.625, "holdout_images": 8}
    found = shown(replace(run, summary=figures))
    assert found["accuracy"] == "0.6250 by its head, on 8 held-out samples"
    assert found["probabilities"].startswith("not calibrated")


def test_a_run_without_figures_is_shown_too(tmp_path: Path) -> None:
    found = shown(replace(drawn_run(tmp_path, (6,), calibrated=False), summary={}))
    assert {"accuracy", "ΔR", "training"}.isdisjoint(found)
    assert found["network"] == "mlp, 12 features"


def test_names_are_escaped_and_there_is_no_colour(tmp_path: Path) -> None:
    run = drawn_run(tmp_path / "a&b", (6,)).add_class(EVIL, samples((6,), 5))
    run = replace(run, class_names=(*(["<b>"] * CLASSES), EVIL), summary={"warning": "collapsed: R < 2"})
    text = run._repr_html_()
    assert set(Cells(text).tags) <= {"div", "strong", "table", "tr", "td"}
    facts = Cells(text).facts
    assert facts["added classes"] == EVIL
    assert facts["data"].endswith("<b>, <b>, <b>, <b>")
    assert facts["warning"] == "collapsed: R < 2"
    assert not re.search(r"(?<![-\w])color|background|#[0-9a-f]{3}", text)  # a dark page stays dark


def test_a_thousand_classes_stay_short(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, (6,))
    many = replace(run, class_names=tuple(f"class number {j}" for j in range(1000)))
    assert len(many._repr_html_()) < 4000
    assert "and 992 more" in shown(many)["data"]
