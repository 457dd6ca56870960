"""Debian's Chromium without a window, and what the tests ask of a page in it."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

REQUIRED = os.environ.get("VMCR2_REQUIRE_BROWSER") == "1"
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
)
_EXTENTS = """
return [...document.querySelectorAll("[data-figure]")].filter((box) => box.offsetParent !== null).map((box) => {
  const marks = [...box.querySelectorAll("svg path, svg rect, svg circle, svg line")].map((node) => node.getBBox());
  const drawn = [...box.querySelectorAll("svg")].pop();
  const area = drawn ? drawn.getBBox() : { width: 0, height: 0 };
  const shades = [...box.querySelectorAll("canvas")].map((canvas) => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const seen = new Set();
    for (let i = 0; i < pixels.length; i += 4) seen.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
    return { shades: seen.size, width: canvas.getBoundingClientRect().width };
  });
  return { figure: box.dataset.figure, width: area.width, height: area.height, marks: marks.length, canvases: shades };
});
"""


class Browser:
    """A page open in Chromium."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(
        self, page: Path | str, *, width: int = 1280, dark: bool = False, scripts: bool = True, says_ready: bool = True
    ) -> None:
        """Load a page. Our own pages say when they are ready; others (``says_ready=False``) are ready when loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get_log("browser")  # what an earlier page said
        self.driver.get(page if isinstance(page, str) else page.resolve().as_uri())
        if not says_ready:
            self.wait_for("return document.readyState === 'complete'")
        elif scripts and isinstance(page, str):  # a server's page asks the server before it is ready
            self.wait_for("return document.documentElement.dataset.ready === 'yes'")
        elif scripts:
            assert self.ask("return document.documentElement.dataset.ready") == "yes", self.complaints()

    def ask(self, script: str, *args: Any) -> Any:
        return self.driver.execute_script(script, *args)

    def wait_for(self, script: str, *args: Any, seconds: float = 30) -> Any:
        """What the script returns, as soon as that is true."""
        from selenium.webdriver.support.ui import WebDriverWait

        waiting = WebDriverWait(self.driver, seconds, poll_frequency=0.05)
        return waiting.until(lambda _: self.ask(script, *args), f"never true: {script}")

    def complaints(self) -> list[str]:
        """What the console says, but for Chromium's advice to these tests, which read pixels back."""
        said = [entry["message"] for entry in self.driver.get_log("browser")]
        return [message for message in said if "willReadFrequently" not in message]

    def figures(self) -> dict[str, dict[str, Any]]:
        """Every figure in sight: extent of what is drawn, number of marks, shades of its canvases."""
        return {entry["figure"]: entry for entry in self.ask(_EXTENTS)}

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window. (A phone's ``innerWidth`` grows with the page.)"""
        return int(self.ask("return document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def requests(self) -> list[str]:
        return list(self.ask("return performance.getEntriesByType('resource').map((entry) => entry.name)"))

    def text(self) -> str:
        return str(self.ask("return document.body.innerText"))

    def print(self) -> bytes:
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", {})["data"])


@contextmanager
def open_browser() -> Iterator[Browser]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        message = "needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)"
        if REQUIRED:
            pytest.fail(message)
        pytest.skip(message)
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = chromium
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        opened = webdriver.Chrome(options=options, service=Service(driver))
        try:
            yield Browser(opened)
        finally:
            opened.quit()
