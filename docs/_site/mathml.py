"""Equations as MathML, written when the site is built: a reader needs neither a network nor scripts."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import SphinxError


def equation(node: nodes.Element, display: str) -> str:
    """The MathML of a node's LaTeX."""
    latex = node.astext()
    try:
        return str(convert(latex, display=display))
    except Exception as error:  # the library has no common class of errors
        raise SphinxError(f"{node.source}:{node.line}: this is no LaTeX that we can show: {latex}") from error


def inline(translator: Any, node: nodes.math) -> None:
    """An equation within a sentence."""
    translator.body.append(f'<span class="math">{equation(node, "inline")}</span>')
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """An equation of its own, in a box that scrolls where the window is narrower."""
    translator.body.append(f'<div class="equation">{equation(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make this the way in which HTML shows equations."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
