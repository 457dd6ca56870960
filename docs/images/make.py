"""The pictures in README and docs/report.md; needs chromium and chromedriver, as the browser tests do.

    python -m docs.images.make                            # three runs of digits, made here (about a minute)
    python -m docs.images.make RUN/report.html cifar100   # a report that exists

From the repository root. It takes the chart of ΔR and the heat maps of the page, and puts one under the other. Of the
runs made here it also draws the maps of the features, as `run.plot.feature_map()` does.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.page_browser import Browser, open_browser
from vmcr2.report import plots_of, read_run, write_report
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


def draw_maps(runs: dict[str, Path], name: str) -> None:
    """The maps of runs side by side, each under its name."""
    drawn = []
    for title, run in runs.items():
        figure = plots_of(run).feature_map()
        figure.axes[0].set_title(title, pad=18)
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=110)
        drawn.append(Image.open(content).convert("RGB"))
    whole = Image.new("RGB", (sum(one.width for one in drawn), max(one.height for one in drawn)), "white")
    left = 0
    for one in drawn:
        whole.paste(one, (left, 0))
        left += one.width
    whole.quantize(64, method=Image.Quantize.MAXCOVERAGE).save(HERE / f"map-{name}.png", optimize=True)


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
        draw_maps({"V-MCR²": runs[0], "cross-entropy": runs[2]}, "digits")


if __name__ == "__main__":
    main(sys.argv[1:])
