"""The pictures in README and docs/report.md; needs chromium and chromedriver, as the browser tests do.

    python -m docs.images.make                            # three runs of digits, made here (under a minute)
    python -m docs.images.make RUN/report.html cifar100   # a report that exists

From the repository root. It takes the chart of ΔR and the heat maps of the page, and puts one under the other.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.page_browser import Browser, open_browser
from vmcr2.report import read_run, write_report
from vmcr2.runs import fit, recipe

HERE = Path(__file__).parent
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
    """Photograph a report that exists, or train on digits, write a report and photograph it."""
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
