"""How figures look, and a figure that a notebook shows by itself."""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from matplotlib.figure import Figure

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "savefig.dpi": 300,
    "savefig.bbox": "tight",
    "svg.hashsalt": "vmcr2",  # so that the same picture gives the same file
}


class NotebookFigure(Figure):
    """A figure that does not belong to pyplot: nobody has to close it, and a notebook shows it where it is returned."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png", dpi=110, bbox_inches="tight")
        return content.getvalue()


def styled() -> AbstractContextManager[None]:
    """Inside, figures are drawn and saved in this style; on exit a person's own style is restored."""
    return matplotlib.rc_context(_STYLE)
