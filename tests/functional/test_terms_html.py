"""Terms in a notebook: their symbols and their values."""

from __future__ import annotations

import re

import torch
from seeds import randn

from vmcr2 import RateTerms, VMCR2Loss, rate_reduction


def numbers(html: str) -> list[str]:
    """The value of each row."""
    return [
        re.sub(r"<[^>]*>", "", row.split("</td>")[0].split("<td")[1].split(">", 1)[1]) for row in html.split("<tr>")[1:]
    ]


def test_rate_terms_show_their_three_numbers() -> None:
    z = torch.nn.functional.normalize(randn(20, 6), dim=1)
    terms = rate_reduction(z.requires_grad_(), torch.arange(20) % 3)
    html = terms._repr_html_()
    assert numbers(html) == [f"{value.item():.5g}" for value in terms]
    assert "R<sub>c</sub>" in html


def test_variational_terms_show_all_five() -> None:
    loss = VMCR2Loss(3, 6, atoms_per_class=2)
    terms = loss.terms(torch.nn.functional.normalize(randn(20, 6).float(), dim=1), torch.arange(20) % 3)
    assert numbers(terms._repr_html_()) == [f"{value.item():.5g}" for value in terms]


def test_what_is_no_single_number_shows_its_shape() -> None:
    terms = RateTerms(torch.zeros(4), torch.zeros((), device="meta"), torch.tensor(float("nan")))
    assert numbers(terms._repr_html_()) == ["tensor of shape (4,)", "tensor of shape ()", "nan"]


def test_terms_are_still_tuples() -> None:
    terms = RateTerms(*torch.arange(3.0))
    assert terms._fields == ("expansion", "compression", "delta")
    assert terms._replace(delta=torch.tensor(7.0)).delta == 7
    assert tuple(terms) == (0, 1, 2)
