"""The site as `make docs` has built it: links, pictures, equations, and its look on a phone."""

from __future__ import annotations

import os
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from doc_blocks import PAGES, ROOT
from page_browser import Browser

SITE = ROOT / "build/docs"
REQUIRED = os.environ.get("VMCR2_REQUIRE_SITE") == "1"
BOXES = """
return [...document.querySelectorAll("div.equation")].map((box) => {
  const drawn = box.querySelector("math").getBoundingClientRect();
  return { height: drawn.height, left: drawn.left - box.getBoundingClientRect().left };
});
"""
EXAMPLES = sorted((ROOT / "examples/gallery").glob("plot_*.py"))


class Page(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {"", "top"}
        self.equations = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        self.equations += tag == "math"
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload", "shortcut icon"):
            self.loaded.append(found["href"])
        elif "src" in found:
            self.loaded.append(found["src"])


@cache
def read(path: Path) -> Page:
    return Page(path.read_text())


@pytest.fixture(scope="module")
def pages() -> list[Path]:
    """Of a site that is there and not older than its sources."""
    first = SITE / "index.html"
    sources = [*PAGES, *EXAMPLES, ROOT / "docs/conf.py", *(ROOT / "docs/_site").rglob("*.*")]
    fresh = first.exists() and first.stat().st_mtime >= max(
        path.stat().st_mtime for path in sources if "__pycache__" not in path.parts
    )
    if not fresh:
        message = f"{SITE} is missing or older than its sources: make docs"
        if REQUIRED:
            pytest.fail(message)
        pytest.skip(message)
    return sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)


def test_every_page_is_there(pages: list[Path]) -> None:
    for page in PAGES:
        assert (SITE / page.relative_to(ROOT).with_suffix(".html")).exists(), page


def test_links_and_anchors_lead_somewhere(pages: list[Path]) -> None:
    wrong = []
    for page in pages:
        for link in [*read(page).links, *read(page).loaded]:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not target.exists():
                wrong.append(f"{page.relative_to(SITE)}: {link}")
            elif target.suffix == ".html" and unquote(parts.fragment) not in read(target).anchors:
                wrong.append(f"{page.relative_to(SITE)}: {link} (no such anchor)")
    assert not wrong


def test_a_reader_needs_no_network(pages: list[Path]) -> None:
    for page in pages:
        assert [src for src in read(page).loaded if urlsplit(src).scheme in ("http", "https")] == [], page
        assert "//" not in [src[:2] for src in read(page).loaded], page


def test_equations_are_typeset(pages: list[Path]) -> None:
    theory = SITE / "docs/theory.html"
    assert read(theory).equations > 20
    for page in pages:
        if "gallery" in page.parts or page.name == "CHANGELOG.html":
            continue
        prose = re.sub(r"<(pre|code|math)\b.*?</\1>", "", page.read_text(), flags=re.S)
        assert "$$" not in prose, page
        assert not re.search(r"\\(frac|sum|log|Gamma)\b", prose), page


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_of_the_gallery_has_its_pictures(pages: list[Path], example: Path) -> None:
    drawn = len(re.findall(r"^(?:plt\.show|run\.plot\.\w+)\(\)$", example.read_text(), re.M))
    assert drawn >= 1
    assert f"{example.stem}.html" in (SITE / "docs/gallery/index.html").read_text()
    shown = [src for src in read(SITE / f"docs/gallery/{example.stem}.html").loaded if "sphx_glr" in src]
    assert len(shown) == drawn
    for src in shown:
        assert (SITE / "docs/gallery" / src).resolve().stat().st_size > 5000


def test_the_api_has_arguments_and_no_strangers(pages: list[Path]) -> None:
    loss = (SITE / "docs/api/vmcr2.VMCR2Loss.html").read_text()
    assert "atoms_per_class" in loss
    assert "latch" in loss
    assert "register_forward_hook" not in loss, "methods of torch are documented by torch"
    assert "predict_proba" in (SITE / "docs/api/vmcr2.sklearn.RateReductionClassifier.html").read_text()


@pytest.mark.browser
def test_no_page_scrolls_sideways_on_a_phone(pages: list[Path], browser: Browser) -> None:
    too_wide = {}
    for page in pages:
        if page == SITE / "index.html":  # leads to docs/index.html
            continue
        browser.open(page, width=390, says_ready=False)
        if browser.overflow() > 0:
            too_wide[str(page.relative_to(SITE))] = browser.overflow()
    assert not too_wide


@pytest.mark.browser
def test_the_first_page_leads_on_and_nothing_complains(pages: list[Path], browser: Browser) -> None:
    browser.open(SITE / "index.html", says_ready=False)
    browser.wait_for("return location.pathname.endsWith('docs/index.html')")
    browser.wait_for("return document.readyState === 'complete'")
    assert "at right angles" in browser.text()
    browser.open(SITE / "docs/theory.html", width=390, says_ready=False)
    boxes = browser.ask(BOXES)
    assert len(boxes) > 10
    for box in boxes:
        assert box["height"] > 15
        assert box["left"] >= 0, "its beginning can be scrolled to"
    assert max(box["height"] for box in boxes) > 30, "fractions are drawn"
    said = [entry for entry in browser.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    assert not said
