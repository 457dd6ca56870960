"""How a thing looks in a notebook: a title and a few facts. It has no colours, so it is readable in light and dark."""

from __future__ import annotations

import html
from collections.abc import Iterable


def facts_html(title: str, facts: Iterable[tuple[str, str]], note: str = "") -> str:
    """HTML of a title, a row for each fact, and a note. All texts are escaped; a fact without a text is left out.

    >>> facts_html("a < b", [("classes", "<i>"), ("none", "")]).count("&lt;")
    2
    """
    left = "text-align:left;vertical-align:top;padding:0.15em 1.2em 0.15em 0;"
    rows = "".join(
        f'<tr><td style="{left}opacity:0.75;">{html.escape(name)}</td>'
        f'<td style="{left}max-width:40em;overflow-wrap:anywhere;">{html.escape(text)}</td></tr>'
        for name, text in facts
        if text
    )
    below = f'<div style="opacity:0.75;">{html.escape(note)}</div>' if note else ""
    return (
        f'<div><strong>{html.escape(title)}</strong><table style="border-collapse:collapse;margin:0.4em 0;">'
        f"{rows}</table>{below}</div>"
    )
