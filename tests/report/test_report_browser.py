"""The page as a browser shows it: nothing missing, nothing asked of the network, nothing run that a class name says."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from page_browser import Browser
from run_folders import HOSTILE
from safetensors.numpy import load_file

from vmcr2.report import read_run, write_report
from vmcr2.report._feature_map import feature_map

pytestmark = pytest.mark.browser

CURVES = {"curve-delta", "curve-rates", "curve-lr"}
VARIATIONAL = {"curve-variational", "curve-mismatch"}
CLASSES = {"inner-0", "map-0", "spectra-0", "histogram-0", "angles-0", "confusion-0"}
CODES = {"blocks-0", "atoms-0"}
EXPECTED = {
    "real-vmcr2": CURVES | VARIATIONAL | CLASSES | CODES,
    "real-mcr2": CURVES | CLASSES,
    "real-ce": CURVES | CLASSES,
    "hundred": CURVES | VARIATIONAL | CLASSES | CODES,
    "two-hundred": CURVES | VARIATIONAL | CLASSES | CODES,
    "hostile": CURVES | VARIATIONAL | CLASSES | CODES,
    "holdout": CURVES | VARIATIONAL | CLASSES | CODES | {"curve-accuracy"},
    "one-epoch": CLASSES | CODES,  # its curves would have one point: they are numbers
    "failed": CURVES | VARIATIONAL,
    "at-once": set(),
    "old": CURVES | VARIATIONAL | {"inner-0", "map-0", "spectra-0", "confusion-0"},
}


def page_of(name: str, real: dict[str, Path], made: dict[str, Path], folder: Path) -> Path:
    run = real[name.removeprefix("real-")] if name.startswith("real-") else made[name]
    return write_report([read_run(run)], folder / "report.html")


def assert_sound(browser: Browser, expected: set[str]) -> None:
    found = browser.figures()
    assert set(found) == expected
    for name, figure in found.items():
        assert figure["width"] > 150, name
        assert figure["height"] > 100, name
        assert figure["marks"] > 0, name
        assert bool(figure["canvases"]) == name.startswith(("inner", "angles", "confusion", "blocks")), name
        for canvas in figure["canvases"]:
            assert canvas["shades"] > 1, name
            assert canvas["width"] > 150, name
    assert browser.overflow() <= 0
    assert browser.requests() == []
    assert browser.complaints() == []


@pytest.mark.parametrize("name", EXPECTED)
def test_every_figure_is_drawn_on_a_phone_and_on_a_desk(
    name: str, real: dict[str, Path], made: dict[str, Path], browser: Browser, tmp_path: Path
) -> None:
    page = page_of(name, real, made, tmp_path)
    for width in (390, 1280):
        browser.open(page, width=width)
        assert_sound(browser, EXPECTED[name])


def test_class_names_that_are_html_are_text(made: dict[str, Path], browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of("hostile", {}, made, tmp_path))
    text = browser.text()
    for name in HOSTILE:
        assert name in text
    options = browser.ask("return [...document.querySelectorAll('[data-figure=spectra-0] option')].map((o) => o.text)")
    assert options[:6] == HOSTILE
    assert browser.ask("return document.querySelectorAll('img[src=x], [onerror]').length") == 0
    assert browser.ask("return document.scripts.length") == 2
    assert browser.complaints() == []


def test_the_heat_map_shows_the_cosines(real: dict[str, Path], browser: Browser, tmp_path: Path) -> None:
    """From the pixels back to |ZZᵀ|, computed by hand."""
    browser.open(page_of("real-vmcr2", real, {}, tmp_path))
    shade = browser.ask(
        "const c = document.querySelector('[data-figure=inner-0] canvas');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return [c.width, Array.from({length: c.width * c.width}, (_, i) => d[4 * i])]"
    )
    size, red = shade[0], np.array(shade[1]).reshape(shade[0], shade[0])
    tensors = load_file(real["vmcr2"] / "evaluation.safetensors")
    rows = np.concatenate([np.flatnonzero(tensors["labels"] == j)[:30] for j in range(10)])
    z = tensors["features"][rows].astype(np.float64)
    cosines = np.abs(z @ z.T)
    assert size == 300
    stops = [0xFB, 0xCF, 0x85, 0x34, 0x0A]  # the red of the style sheet's light ramp
    expected = np.interp(cosines, np.linspace(0, 1, 5), stops)
    assert np.abs(red - expected).max() <= 2


def test_seconds_logarithm_class_and_layer_can_be_chosen(
    made: dict[str, Path], browser: Browser, tmp_path: Path
) -> None:
    browser.open(page_of("plain", {}, made, tmp_path))
    ends = "return [...document.querySelectorAll('[data-figure=curve-delta] > svg text')].map((t) => t.textContent)"
    assert "epoch" in browser.ask(ends)
    assert "20" in browser.ask(ends)
    browser.ask("document.querySelector('input[value=s]').click()")
    assert "seconds of training" in browser.ask(ends)
    browser.ask("document.querySelector('input[name=log]').click()")
    assert "epoch" not in browser.ask(ends)
    before = browser.ask("return document.querySelector('[data-figure=atoms-0] > svg').outerHTML")
    choose = (
        "const s = document.querySelector(arguments[0] + ' select'); s.value = arguments[1];"
        "s.dispatchEvent(new Event('change'))"
    )
    browser.ask(choose, "[data-figure=atoms-0]", "3")
    assert browser.ask("return document.querySelector('[data-figure=atoms-0] > svg').outerHTML") != before
    browser.ask(choose, "[data-figure=angles-0]", "1")
    assert browser.ask("return document.querySelector('[data-figure=angles-0] select').value") == "1"
    assert_sound(browser, EXPECTED["hundred"])


def test_a_read_out_follows_the_pointer(made: dict[str, Path], browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of("plain", {}, made, tmp_path))
    point = (
        "const node = document.querySelector(arguments[0]), at = node.getBoundingClientRect();"
        "node.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: at.left + at.width * arguments[1],"
        " clientY: at.top + at.height / 2}));"
        "return node.closest('[data-figure]').querySelector('.tip').innerText"
    )
    told = browser.ask(point, "[data-figure=curve-delta] > svg", 0.99)
    assert told.startswith("epoch 20")
    assert "batch: " in told
    assert "|cosine|" in browser.ask(point, "[data-figure=inner-0] .map svg", 0.6)
    assert "of 100" in browser.ask(point, "[data-figure=confusion-0] .map svg", 0.6)
    assert browser.complaints() == []


def test_several_runs_are_overlaid_side_by_side_and_chosen(
    made: dict[str, Path], browser: Browser, tmp_path: Path
) -> None:
    runs = [read_run(made[name]) for name in ("plain", "seed1", "ce", "failed")]
    page = write_report(runs, tmp_path / "report.html")
    curves = {"curve-delta", "curve-expansion", "curve-compression", "curve-variational"}
    curves |= {"curve-variational-compression", "curve-mismatch", "curve-lr"}
    maps = {"inner-0", "inner-1", "inner-2"}  # the last did not get that far
    own = {"map", "spectra", "histogram", "angles", "confusion", "blocks", "atoms"}
    for width in (390, 1280):
        browser.open(page, width=width)
        assert_sound(browser, curves | maps | {f"{name}-0" for name in own})
        lines = browser.ask("return document.querySelectorAll('[data-figure=curve-expansion] > svg > path').length")
        assert lines >= 4
    choose = "const s = document.querySelector('[data-run-choice]'); s.value = 2; s.dispatchEvent(new Event('change'))"
    browser.ask(choose)
    assert_sound(browser, curves | maps | {f"{name}-2" for name in own - {"blocks", "atoms"}})


def rows_of(browser: Browser, column: int) -> list[str]:
    """A column of the table of classes, as far as it can be seen."""
    found: list[str] = browser.ask(
        "return [...document.querySelectorAll('table.classes tbody tr')].filter((row) => row.offsetParent !== null)"
        ".map((row) => row.cells[arguments[0]].innerText)",
        column,
    )
    return found


def test_the_table_of_classes_is_worst_first_can_be_sorted_and_unfolds(
    made: dict[str, Path], browser: Browser, tmp_path: Path
) -> None:
    browser.open(page_of("hundred", {}, made, tmp_path))
    table = read_run(made["hundred"]).tensors["confusion"]
    recall = np.diag(table) / table.sum(1)
    assert [float(cell.rstrip("%")) for cell in rows_of(browser, 1)] == pytest.approx(
        100 * np.sort(recall)[:20], abs=0.051
    )
    click = "document.querySelector(arguments[0]).click()"
    browser.ask(click, ".classes th:nth-child(1) button")
    assert rows_of(browser, 0) == [f"class {j}" for j in range(20)]
    browser.ask(click, "[data-all-rows]")
    assert rows_of(browser, 0) == [f"class {j}" for j in range(100)]
    for way in (1, -1):
        browser.ask(click, ".classes th:nth-child(2) button")
        shown = [float(cell.rstrip("%")) for cell in rows_of(browser, 1)]
        assert shown == pytest.approx(100 * np.sort(recall)[::way], abs=0.051)
    assert browser.complaints() == []


def test_the_map_names_a_sample_s_subspaces(real: dict[str, Path], browser: Browser, tmp_path: Path) -> None:
    """Every point is drawn where its shares put it, and the pointer over it reads them."""
    browser.open(page_of("real-vmcr2", real, {}, tmp_path))
    found = feature_map(read_run(real["vmcr2"]))
    assert found is not None
    box = "document.querySelector('[data-figure=map-0] svg')"
    drawn = browser.ask(
        f"return [...{box}.querySelectorAll('path[fill]')].map((p) => p.getBBox())"
        ".map((b) => [b.x + b.width / 2, b.y + b.height / 2])"
    )
    at = np.array(drawn)
    assert len(at) == len(found.points)
    for axis, way in ((0, 1), (1, -1)):  # the page's y points down
        assert np.corrcoef(at[:, axis], way * found.points[:, axis])[0, 1] > 0.999
    told = browser.ask(
        f"const root = {box}, mark = root.querySelector('path[fill]').getBoundingClientRect();"
        "root.dispatchEvent(new PointerEvent('pointermove', {clientX: mark.left + mark.width / 2,"
        " clientY: mark.top + mark.height / 2}));"
        "return root.parentElement.querySelector('.tip').innerText"
    )
    assert told.startswith("a sample of ")
    assert told.count("% in the subspace of") == 2


def test_the_verdict_comes_first_and_a_single_point_is_a_number(
    made: dict[str, Path], browser: Browser, tmp_path: Path
) -> None:
    browser.open(page_of("one-epoch", {}, made, tmp_path), width=390)
    assert browser.ask("return document.querySelector('main section').id") == "verdict"
    assert "The classes are told apart" in browser.ask("return document.querySelector('.headline').innerText")
    accuracy = read_run(made["one-epoch"]).figure("test_accuracy")
    numbers = browser.ask("return [...document.querySelectorAll('.numbers dd')].map((n) => n.innerText)")
    assert f"{accuracy:.4g}" in numbers
    assert browser.overflow() <= 0


def test_dark_is_dark(made: dict[str, Path], browser: Browser, tmp_path: Path) -> None:
    page = page_of("plain", {}, made, tmp_path)
    light = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    corner = (
        "const c = document.querySelector('[data-figure=inner-0] canvas');"
        "return [...c.getContext('2d').getImageData(c.width - 1, 0, 1, 1).data.slice(0, 3)]"
    )
    browser.open(page, dark=True)
    assert max(browser.ask(light)) < 60
    assert max(browser.ask(corner)) < 120
    assert_sound(browser, EXPECTED["hundred"])
    browser.open(page)
    assert min(browser.ask(light)) > 240
    assert min(browser.ask(corner)) > 200


def test_it_prints_light_and_without_controls(made: dict[str, Path], browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of("plain", {}, made, tmp_path), dark=True)
    printed = browser.print()
    assert printed.startswith(b"%PDF")
    assert len(printed) > 50_000
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.ask("return getComputedStyle(document.querySelector('form.controls')).display") == "none"
    assert browser.ask("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_scripts_tables_and_sentences_are_there(
    made: dict[str, Path], browser: Browser, tmp_path: Path
) -> None:
    page = page_of("plain", {}, made, tmp_path)
    browser.open(page, scripts=False)
    text = browser.driver.find_element("tag name", "body").text
    assert "This figure is drawn by a script" in text
    accuracy = read_run(made["plain"]).figure("test_accuracy")
    assert f"{accuracy:.4f}" in text
    assert "two samples of one class have a mean |cosine| of 0.410, and two of different classes 0.020" in text
    assert "class 9" in text  # no row of the table is folded away
    browser.open(page)


def test_one_heading_and_a_name_for_every_figure(real: dict[str, Path], browser: Browser, tmp_path: Path) -> None:
    browser.open(page_of("real-vmcr2", real, {}, tmp_path))
    assert browser.ask("return document.querySelectorAll('h1').length") == 1
    labels = browser.ask("return [...document.querySelectorAll('[data-figure]')].map((n) => n.ariaLabel)")
    assert len(labels) >= 13
    assert all(len(label) > 20 for label in labels)
    assert browser.ask("return [...document.images].filter((i) => !i.complete || !i.naturalWidth).length") == 0


def test_it_opens_from_another_place(real: dict[str, Path], browser: Browser, tmp_path: Path) -> None:
    """One file, alone."""
    shutil.copy(page_of("real-ce", real, {}, tmp_path), tmp_path / "alone.html")
    (tmp_path / "report.html").unlink()
    browser.open(tmp_path / "alone.html")
    assert_sound(browser, EXPECTED["real-ce"])
