"""The pictures in README and docs/report.md; needs chromium and chromedriver, as the browser tests do.

    .venv/bin/python docs/images/make.py                            three runs of digits, made here (under a minute)
    .venv/bin/python docs/images/make.py RUN/report.html cifar100   a report that is there

It takes the chart of ΔR and the heat maps of the page, and puts them under each other.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent.parent / "tests" / "report")]

from page_browser import Browser, open_browser  # noqa: E402

from vmcr2.report import read_run, write_report  # noqa: E402
from vmcr2.train import fit, recipe  # noqa: E402

PARTS = (".panel:first-child", "#inner")
WIDTH = 1100


def shot(browser: Browser, selector: str) -> Image.Image:
    """One element of the page."""
    where = browser.ask(
        "const r = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return {x: r.x - 16, y: r.y + scrollY - 8, width: r.width + 32, height: r.height + 16}",
        selector,
    )
    options = {"format": "png", "captureBeyondViewport": True, "clip": where | {"scale": 1}}
    data = browser.driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"]
    return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")


def photograph(page: Path, name: str) -> None:
    """The parts of a page under each other, as a small PNG."""
    with open_browser() as browser:
        browser.open(page, width=WIDTH)
        parts = [shot(browser, selector) for selector in PARTS]
    whole = Image.new(
        "RGB", (max(part.width for part in parts), sum(part.height for part in parts)), parts[0].getpixel((0, 0))
    )
    top = 0
    for part in parts:
        whole.paste(part, (0, top))
        top += part.height
    # so that the lines keep their own colours, which the default quantisation mixes
    whole.quantize(128, method=Image.Quantize.MAXCOVERAGE).save(HERE / f"report-{name}.png", optimize=True)


def main(arguments: list[str]) -> None:
    """Photograph a report that is there, or train on digits, report, photograph."""
    if arguments:
        page, name = arguments
        photograph(Path(page).resolve(), name)
        return
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            fit(recipe("digits", objective=name), out=Path(folder) / name).folder for name in ("vmcr2", "mcr2", "ce")
        ]
        page = write_report([read_run(run) for run in runs], Path(folder) / "report.html")
        photograph(page, "digits")


if __name__ == "__main__":
    main(sys.argv[1:])
