"""How terms look in a notebook: a small table. It has no colours of its own, so it is readable in light and dark."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

_CELL = "text-align:left;padding:0.15em 1em 0.15em 0;"


def terms_table(rows: Iterable[tuple[str, str, Tensor]]) -> str:
    """HTML with a row for each term: its symbol (HTML of this package), its meaning, and its value in nats.

    >>> import torch
    >>> from vmcr2 import RateTerms
    >>> terms = RateTerms(*torch.tensor([3.0, 1.0, 2.0]))
    >>> terms._repr_html_().count("<tr>")
    3
    """
    lines = [
        f'<tr><th style="{_CELL}">{symbol}</th><td style="{_CELL}">{_value(value)}</td>'
        f'<td style="{_CELL}opacity:0.75;">{meaning}</td></tr>'
        for symbol, meaning, value in rows
    ]
    return f'<table style="border-collapse:collapse;">{"".join(lines)}</table>'


def _value(value: Tensor) -> str:
    """Five digits; of anything but one number that is there, the shape alone."""
    if value.numel() != 1 or value.is_meta:
        return f"tensor of shape {tuple(value.shape)}"
    return f"{value.item():.5g}"
