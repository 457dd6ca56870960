"""The server's page in a browser: pictures dropped and chosen, refusals, broken files, rows, names that are HTML."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_browser import Browser
from PIL import Image
from served import GOOD, TEST, encoded, png_of, server_thread

from vmcr2.runs import Run
from vmcr2.serve import Limits, create_app

pytestmark = pytest.mark.browser

# a file that is dropped on the page, as a browser would do it
DROP = """
const [name, content] = arguments;
const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
const transfer = new DataTransfer();
transfer.items.add(new File([bytes], name, { type: "image/png" }));
document.getElementById("drop").dispatchEvent(
  new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: transfer }));
"""
COUNT = "return document.querySelectorAll('#answers > article').length"


@pytest.fixture(scope="module")
def page(digits_run: Run) -> Iterator[str]:
    with server_thread(create_app(digits_run, limits=Limits(samples=3))) as port:
        yield f"http://127.0.0.1:{port}/"


def drop(browser: Browser, name: str, content: bytes) -> Any:
    """Drop a file, and wait for its answer; the first one on the page."""
    before = browser.ask(COUNT)
    browser.ask(DROP, name, base64.b64encode(content).decode())
    browser.wait_for(f"{COUNT} > arguments[0]", before)
    return browser.ask("return document.querySelector('#answers > article').innerText")


def expected(run: Run, row: int) -> tuple[str, float]:
    probability = run.predict_proba(TEST.images[row : row + 1])[0]
    return run.class_names[int(probability.argmax())], float(probability.max())


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_a_dropped_picture_gets_its_class(page: str, browser: Browser, digits_run: Run, width: int, dark: bool) -> None:
    browser.open(page, width=width, dark=dark)
    known = (digits_run.answers(TEST.images).novelty <= digits_run.threshold(0.05)).nonzero()[0].item()
    name, probability = expected(digits_run, int(known))
    text = drop(browser, "seven.png", png_of(TEST.images[int(known)]))
    assert "seven.png" in text
    assert browser.ask("return document.querySelector('#answers h2').textContent") == name
    shown = re.search(r"Probability ([\d.]+) %", text)
    assert shown
    assert float(shown[1]) == pytest.approx(100 * probability, abs=0.11)
    assert "does not look foreign" in text
    near = "[...document.querySelectorAll('#answers article:first-child .near img')]"
    loaded = browser.wait_for(
        f"const all = {near}; return all.length && all.every((i) => i.naturalWidth === 8) && all.length"
    )
    assert loaded == 5
    assert "cosine" in text
    assert browser.wait_for("return document.querySelector('.given img').naturalWidth") == 8
    assert browser.overflow() <= 0
    light = browser.ask("return Math.min(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g))")
    assert (light < 60) == dark
    assert browser.complaints() == []


def test_what_is_foreign_is_refused_and_said(page: str, browser: Browser, digits_run: Run) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (8, 8), dtype=np.uint8)
    picture = encoded(Image.fromarray(noise))
    assert digits_run.predict(Image.fromarray(noise), refuse=0.2) == [None]
    browser.open(page)
    assert browser.ask("return document.getElementById('rate').value") == "0.05"
    browser.ask("document.getElementById('rate').value = '0.2'")
    text = drop(browser, "noise.png", picture)
    assert re.match(r"noise.png\s+Refused\s+It looks foreign: novelty", text)
    browser.ask("document.getElementById('rate').value = '0'")
    assert "Refused" not in drop(browser, "noise.png", picture)
    assert browser.complaints() == []


def test_small_novelties_are_not_shown_as_zero(page: str, browser: Browser) -> None:
    """Of a run on a table with clear classes both are tiny: "0.000 is above 0.000" would say nothing."""
    browser.open(page)
    answer = {"likeliest": "a", "probability": 0.5, "refused": True, "novelty": 0.0000412, "threshold": 0.00002}
    said = browser.ask("return verdict(arguments[0])", answer)
    assert "novelty 0.0000412 is above 0.00002." in said
    assert "0.473 is above 0.100" in browser.ask(
        "return verdict(arguments[0])", answer | {"novelty": 0.473, "threshold": 0.1}
    )


def test_chosen_files_one_of_them_broken(page: str, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "good.png").write_bytes(GOOD)
    (tmp_path / "text.png").write_text("I am a text.")
    browser.open(page)
    field = browser.driver.find_element("id", "files")
    field.send_keys(f"{tmp_path / 'good.png'}\n{tmp_path / 'text.png'}")
    browser.wait_for(f"{COUNT} === 2")
    first, second = browser.ask("return [...document.querySelectorAll('#answers > article')].map((a) => a.innerText)")
    assert "Probability" in first
    assert "text.png: it is no picture of a known format" in second
    field.send_keys(str(tmp_path / "text.png"))  # alone: the whole request is refused
    browser.wait_for(f"{COUNT} === 3")
    said = "return document.querySelector('#answers [role=alert]').textContent"
    assert browser.ask(said) == "text.png: it is no picture of a known format"
    for at in range(4):
        (tmp_path / f"{at}.png").write_bytes(GOOD)
    field.send_keys("\n".join(str(tmp_path / f"{at}.png") for at in range(4)))
    browser.wait_for(f"{COUNT} === 4")
    assert browser.ask(said) == "A request may have 3 pictures: choose fewer."


def test_names_that_are_html_are_text(browser: Browser, digits_run: Run) -> None:
    attack = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>"
    hostile = replace(digits_run, class_names=tuple(f"{attack}{j}" for j in range(10)))
    with server_thread(create_app(hostile)) as port:
        browser.open(f"http://127.0.0.1:{port}/")
        text = drop(browser, f"{attack}.png", GOOD)
        assert text.count(attack) >= 3
        drop(browser, f"{attack}.txt", b"no picture")
        assert browser.ask("return document.querySelectorAll('#answers script, [onerror]').length") == 0
        assert browser.ask("return document.title") == "digits · vmcr2 serve"


def test_a_run_that_is_not_calibrated_says_so(browser: Browser, plain_run: Run) -> None:
    with server_thread(create_app(plain_run)) as port:
        browser.open(f"http://127.0.0.1:{port}/")
        assert "This run is not calibrated" in browser.text()
        text = drop(browser, "a.png", GOOD)
        assert "No probability, and nothing is refused" in text
        assert browser.ask("return document.getElementById('refusal').hidden")
        assert browser.complaints() == []


def test_rows_are_typed_into_fields(browser: Browser, wine_run: Run) -> None:
    row = {"alcohol": "13.2", "ash": "2.3", "flavanoids": "2.8", "proline": "1050", "colour": "deep"}
    with server_thread(create_app(wine_run, refuse=0)) as port:
        browser.open(f"http://127.0.0.1:{port}/", width=390)
        for name, value in row.items():
            browser.driver.find_element("css selector", f"[name={name}]").send_keys(value)
        browser.ask("document.querySelector('#row button').click()")
        browser.wait_for(f"{COUNT} === 1")
        assert browser.ask("return document.querySelector('#answers h2').textContent") == wine_run.predict([row])[0]
        browser.driver.find_element("css selector", "[name=ash]").send_keys("x")
        browser.ask("document.querySelector('#row button').click()")
        browser.wait_for(f"{COUNT} === 2")
        assert "the column ash has the value '2.3x'" in browser.text()
        assert browser.overflow() <= 0
