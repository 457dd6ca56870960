"""What the experiments' pictures share: the report's colours, a style, and small files that are the same each time."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure
from PIL import Image

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BLUE, ORANGE, GREEN, GREY = "#0060a8", "#c4500a", "#007a5a", "#586069"  # the report's
COLOURS = {"vmcr2": BLUE, "mcr2": GREEN, "ce": ORANGE}
STYLE: dict[Any, Any] = {
    "figure.facecolor": "#fdfdfb",
    "axes.facecolor": "#fdfdfb",
    "axes.edgecolor": "#dcdfe0",
    "axes.grid": True,
    "grid.color": "#dcdfe0",
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "font.size": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.marker": "o",
}


def draw_all(
    about: str | None, pictures: Mapping[str, Callable[[], Figure]], arguments: Sequence[str] | None = None
) -> None:
    """A script's command line and its work: every picture into the folder that --out names."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=IMAGES)
    out: Path = parser.parse_args(arguments).out
    out.mkdir(parents=True, exist_ok=True)
    for name, draw in pictures.items():
        with mpl.rc_context(STYLE):
            save(draw(), out / f"{name}.png")
        print(out / f"{name}.png")


def save(figure: Figure, path: Path) -> None:
    """Small, and without the date and the versions that matplotlib would write into it."""
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")  # type: ignore[attr-defined]
    picture.quantize(128, method=Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    pyplot.close(figure)
