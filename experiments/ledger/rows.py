"""The claims that are run for real: the paper's tables for MNIST and CIFAR-100, read literally and tuned.

All training images are trained on, and the test images are read once, at the end of each run.
"""

from __future__ import annotations

from dataclasses import dataclass

from vmcr2.train import Config, recipe

TUNED_SEEDS = (0, 1, 2)
OBJECTIVES = {"vmcr2": "V-MCR²", "mcr2": "MCR²", "ce": "cross-entropy"}
"""As the paper calls them."""


@dataclass(frozen=True)
class Row:
    """A claim: a configuration and its seeds."""

    name: str
    config: Config
    seeds: tuple[int, ...] = (0,)

    def of(self, seed: int) -> Config:
        """The configuration of one run."""
        return self.config.replace(seed=seed)

    def named(self, seed: int) -> str:
        """One run: its result's file, without the ending."""
        return f"{self.name}-seed{seed}"

    @property
    def family(self) -> str:
        """«paper» or «tuned»."""
        return self.name.split("-", 1)[0]


def _row(family: str, name: str, seeds: tuple[int, ...]) -> Row:
    return Row(f"{family}-{name}", recipe(f"{name}-paper" if family == "paper" else name), seeds)


def rows() -> dict[str, Row]:
    """All by name, in the order in which GPU time is spent."""
    cifar = [_row("tuned", f"cifar100-{objective}", TUNED_SEEDS) for objective in ("vmcr2", "ce")]
    mnist = [_row("tuned", f"mnist-{objective}", TUNED_SEEDS) for objective in OBJECTIVES]
    carried = [_row("tuned", "cifar100-mcr2", TUNED_SEEDS)]
    paper = [_row("paper", f"{data}-{objective}", (0,)) for data in ("cifar100", "mnist") for objective in OBJECTIVES]
    narrow = [
        _row(family, f"cifar100-d100-{objective}", (0,))
        for family in ("tuned", "paper")
        for objective in ("vmcr2", "mcr2")
    ]
    preact = [_row("tuned", f"cifar100-preact-{objective}", (0,)) for objective in ("vmcr2", "ce")]  # 300 epochs
    return {row.name: row for row in [*cifar, *mnist, *carried, *paper, *narrow, *preact]}
