"""The paper's own figures: Tables 1, 2 and 3, by recipe."""

from __future__ import annotations

from typing import NamedTuple


class PaperFigures(NamedTuple):
    """A row of the paper. ``delta_r`` is its «Training ΔR», which seems to be over minibatches."""

    accuracy: float
    delta_r: float | None
    epochs: int
    table: str
    seconds_per_epoch: float | None = None
    """Table 1, on an A100 (40 GB), PyTorch 1.9.0"""


PAPER: dict[tuple[str, str], PaperFigures] = {
    ("mnist", "mcr2"): PaperFigures(0.9785, 44.6429, 2000, "Table 2", 11.56),
    ("mnist", "vmcr2"): PaperFigures(0.9788, 44.2117, 2000, "Table 2", 6.29),
    ("mnist", "ce"): PaperFigures(0.9738, None, 2000, "Table 2"),
    ("cifar10", "mcr2"): PaperFigures(0.8956, 49.40, 2000, "Table 2", 33.06),
    ("cifar10", "vmcr2"): PaperFigures(0.8997, 48.43, 2000, "Table 2", 20.71),
    ("cifar10", "ce"): PaperFigures(0.8665, None, 2000, "Table 2"),
    ("cifar100", "mcr2"): PaperFigures(0.2421, 226.0519, 2000, "Table 2", 157.45),
    ("cifar100", "vmcr2"): PaperFigures(0.5872, 218.0185, 2000, "Table 2", 31.14),
    ("cifar100", "ce"): PaperFigures(0.5840, None, 2000, "Table 2"),
    # stopped after 200 epochs for its cost, says the caption
    ("tiny-imagenet", "mcr2"): PaperFigures(0.1319, 227.6468, 200, "Table 2", 527.85),
    ("tiny-imagenet", "vmcr2"): PaperFigures(0.2665, 231.1538, 2000, "Table 2", 44.23),
    ("tiny-imagenet", "ce"): PaperFigures(0.1907, None, 2000, "Table 2"),
    ("cifar100-preact", "vmcr2"): PaperFigures(0.6951, 130.2177, 2000, "Table 3"),
    # the highest over the epochs, on the test images, says the caption
    ("cifar100-preact", "ce"): PaperFigures(0.7146, None, 2000, "Table 3"),
    ("tiny-imagenet-preact", "vmcr2"): PaperFigures(0.4189, 134.9504, 2000, "Table 3"),
    ("tiny-imagenet-preact", "ce"): PaperFigures(0.4843, None, 2000, "Table 3"),
}


def paper_figures(recipe: str, objective: str) -> PaperFigures | None:
    """The paper's row for a recipe, literal or not; None if it has none.

    >>> paper_figures("cifar100-vmcr2-paper", "vmcr2").accuracy
    0.5872
    """
    family = recipe.removesuffix("-paper").removesuffix(f"-{objective}")
    return PAPER.get((family, objective))
