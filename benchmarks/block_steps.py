"""How often does a step of Algorithm 1 on one block, with ν = 1, lower the objective?

The appendix's L_Γ assumes ΓᵀΓ ≈ I and covers the penalty only, so it is not a bound. L_A is a bound of the penalty.
This script counts failures over random problems in float64: at latched points, 20 steps of Algorithm 1 with the paper's
ν = 5 later, and at random and at coherent dictionaries with dense codes.

Run:    .venv/bin/python benchmarks/block_steps.py --json benchmarks/results/block-steps.json
On:     any CPU; about a minute
Result: docs/theory.md, «The step sizes»
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vmcr2.functional import latch, normalize_rows, variational_step, variational_terms

PROBLEMS = 200
SIZES = [(40, 8, 4, 2), (60, 20, 5, 3), (30, 40, 3, 8), (100, 16, 10, 2)]
WEIGHTS = (2.0, 20.0, 200.0)


def problem(size: tuple[int, int, int, int], seed: int) -> tuple[Tensor, Tensor]:
    """Unit features of classes between isotropic and one-dimensional, of any balance."""
    m, d, k, _ = size
    generator = torch.Generator().manual_seed(seed)
    labels = (k * torch.rand(m, generator=generator) ** (1 + seed % 3)).long()
    centres = torch.randn(k, d, generator=generator, dtype=torch.float64)
    spread = 10 ** (2 * torch.rand((), generator=generator) - 1)
    return normalize_rows(
        centres[labels] + spread * torch.randn(m, d, generator=generator, dtype=torch.float64)
    ), labels


def points(
    size: tuple[int, int, int, int], z: Tensor, labels: Tensor, weight: float, seed: int
) -> dict[str, tuple[Tensor, Tensor]]:
    """The kinds of dictionaries and codes to step from."""
    _, d, k, s = size
    latched = latch(z, labels, k, atoms_per_class=s)
    moved = latched
    for _ in range(20):
        moved = variational_step(z, labels, *moved, weight=weight)
    generator = torch.Generator().manual_seed(seed)
    atoms = normalize(torch.randn(d, k * s, generator=generator, dtype=torch.float64), dim=0)
    coherent = normalize(atoms[:, :1] + 0.3 * atoms, dim=0)
    dense = torch.rand(k * s, k, generator=generator, dtype=torch.float64) / s
    return {
        "latched": latched,
        "20 steps of ν = 5 later": moved,
        "random atoms, dense codes": (atoms, dense),
        "coherent atoms (mean cosine 0.93), dense codes": (coherent, dense),
    }


def main() -> None:
    """Count, print a table, and write the figures with --json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    failures: dict[str, dict[str, int]] = {}
    total: dict[str, int] = {}
    for size in SIZES:
        for weight in WEIGHTS:
            for seed in range(PROBLEMS // len(SIZES)):
                z, labels = problem(size, seed)
                for kind, point in points(size, z, labels, weight, seed).items():
                    key = f"{kind}, weight {weight:g}"
                    total[key] = total.get(key, 0) + 1
                    before = variational_terms(z, labels, *point, weight=weight).objective
                    for block in ("dictionary", "codes"):
                        of_dictionary = float(block == "dictionary")
                        step = variational_step(
                            z, labels, *point, weight=weight, nu_dictionary=of_dictionary, nu_codes=1 - of_dictionary
                        )
                        after = variational_terms(z, labels, *step, weight=weight).objective
                        counts = failures.setdefault(key, {"dictionary": 0, "codes": 0})
                        counts[block] += bool(after < before - 1e-10 * before.abs())
    print("| point | problems | Γ-step lowers the objective | A-step lowers it |\n|---|---|---|---|")
    for key, counts in failures.items():
        print(f"| {key} | {total[key]} | {counts['dictionary']} | {counts['codes']} |")
    if options.json:
        record = {"torch": torch.__version__, "problems": total, "failures": failures}
        options.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
