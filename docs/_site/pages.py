"""Small things around the pages: a first page where people look for it, the same start for every gallery example."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from weakref import WeakSet

from sphinx.application import Sphinx

_LIST = re.compile(r"^```\{toctree\}\n(.*?)^```", re.S | re.M)
SHOWN: WeakSet[Any] = WeakSet()
"""figures that are on the page already"""
FIRST = """<!doctype html>
<meta charset="utf-8"><title>vmcr2</title>
<meta http-equiv="refresh" content="0; url=docs/index.html">
<a href="docs/index.html">vmcr2</a>
"""


def reset(_gallery: dict[str, Any], _file: str) -> None:
    """Every example starts with the same seed, on one thread, in a folder that the site does not keep."""
    import torch

    torch.manual_seed(0)
    place = Path(os.environ["VMCR2_GALLERY"])
    place.mkdir(parents=True, exist_ok=True)
    os.environ["VMCR2_CACHE"] = str(place / "cache")


def returned_figures(_block: Any, variables: dict[str, Any], gallery: dict[str, Any]) -> str:
    """The picture of a block that ends with a figure, as a notebook shows it: ``run.plot`` does not use pyplot."""
    from matplotlib.figure import Figure
    from sphinx_gallery.scrapers import figure_rst

    last = variables["example_globals"].get(
        "___"
    )  # sphinx-gallery's name for what a last line gave, in any block so far
    if not isinstance(last, Figure) or last in SHOWN:
        return ""
    SHOWN.add(last)
    path = next(variables["image_path_iterator"])
    last.savefig(path, dpi=100, bbox_inches="tight")
    return str(figure_rst([path], gallery["src_dir"]))


def place_new_pages(app: Sphinx, name: str, source: list[str]) -> None:
    """A page of docs/ that no list has yet stands at the end of the guides, under "More"."""
    if name != "docs/guides":
        return
    pages = {path.stem: path.read_text() for path in (Path(app.srcdir) / "docs").glob("*.md")}
    listed = set(
        re.findall(r"^(?:.* <)?([\w-]+)>?$", "".join("\n".join(_LIST.findall(t)) for t in pages.values()), re.M)
    )
    if new := sorted(set(pages) - listed - {"index"}):
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", ":caption: More", "", *new, "```", ""])


def keep_bars(_app: Sphinx, _what: str, _name: str, _found: Any, _options: Any, lines: list[str]) -> None:
    """A bar is the sign of a length in our docstrings. In reStructuredText a pair of them would name a substitution."""
    for at, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        parts = line.split("``")  # every second part is code, in which a bar is a bar
        lines[at] = "``".join(part if odd % 2 else part.replace("|", r"\|") for odd, part in enumerate(parts))


def only_ours(_app: Sphinx, _what: str, name: str, found: Any, skip: bool, _options: Any) -> bool:
    """Leave out what classes inherit from other libraries: their texts point into documents that are not here."""
    home = getattr(getattr(found, "fget", found), "__module__", None)
    if name == "extra_repr":  # for torch's own printing
        return True
    return skip or (callable(found) and isinstance(home, str) and home.partition(".")[0] != "vmcr2")


def write_first_page(app: Sphinx, error: Exception | None) -> None:
    """The pages lie where they lie in the repository, so the site's own index.html only leads to them."""
    if error is None and app.builder.name == "html":
        (Path(app.outdir) / "index.html").write_text(FIRST)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    os.environ.setdefault("VMCR2_GALLERY", str(Path(app.doctreedir).parent / "gallery-runs"))
    app.connect("source-read", place_new_pages)
    app.connect("autodoc-process-docstring", keep_bars)
    app.connect("autodoc-skip-member", only_ours)
    app.connect("build-finished", write_first_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
