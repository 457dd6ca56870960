"""What the codes do: free ones end flat, and flat ones that never move do the same work. Digits, two seeds.

    python experiments/codes.py        # a minute on two cores; writes experiments/results/codes.json

287 training images are held out; the test images are not read.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

from _study import run_all, save, table

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent / "search"))

from variants import VARIANTS

from vmcr2.losses import VMCR2Loss
from vmcr2.train import fit, recipe

SEEDS = (0, 1)
SETTINGS: list[dict[str, Any]] = [
    {},
    *({"codes": "rescaled", "codes_trace": trace} for trace in (1.0, 4.0, 8.0)),
    *({"codes": "flat", "codes_trace": trace} for trace in (1.0, 2.0, 4.0, 8.0, 16.0)),
    {"codes": "flat", "codes_trace": 8.0, "nu_dictionary": 0.0},
    {"variant": "attract"},  # without the push within a class
]


def measured(job: tuple[dict[str, Any], int]) -> dict[str, float]:
    """One run of 100 epochs, and how its codes ended."""
    settings, seed = job
    variant = settings.get("variant", "")
    changes = {name: value for name, value in settings.items() if name != "variant"}
    config = recipe("digits", epochs=100, holdout=287, device="cpu", seed=seed, eval_every=1000, **changes)
    with tempfile.TemporaryDirectory() as folder, VARIANTS[variant]():
        run = fit(config, out=Path(folder) / "run", for_report=False)
    assert isinstance(run.objective, VMCR2Loss)
    codes = run.objective.codes
    own = codes.reshape(10, -1, 10).diagonal(dim1=0, dim2=2)  # each class's codes on its own atoms, (s, k)
    kept = ("holdout_accuracy", "train_delta_r", "expansion", "compression", "effective_rank")
    return {name: run.summary[name] for name in kept} | {
        "codes_trace": codes.sum(0).mean().item(),
        "own_share": (own.sum() / codes.sum()).item(),
        "smallest_to_largest": (own.amin(0) / own.amax(0)).mean().item(),
    }


def main() -> None:
    """Run, save, print."""
    runs = iter(run_all(measured, list(itertools.product(SETTINGS, SEEDS)), workers=2))
    found = [{"settings": settings, "runs": [next(runs) for _ in SEEDS]} for settings in SETTINGS]
    save("codes.json", {"seeds": SEEDS, "table": found})
    rows = []
    for row in found:
        mean = {name: sum(run[name] for run in row["runs"]) / len(SEEDS) for name in row["runs"][0]}
        rows.append(
            [
                str(row["settings"] or "free"),
                ", ".join(f"{run['holdout_accuracy']:.3f}" for run in row["runs"]),
                f"{mean['train_delta_r']:.1f}",
                f"{mean['expansion']:.1f}, {mean['compression']:.1f}",
                f"{mean['effective_rank']:.1f}",
                f"{mean['codes_trace']:.1f}",
                f"{mean['smallest_to_largest']:.2f}",
            ]
        )
    print(table(["codes", "accuracy", "ΔR", "R, R_c", "effective rank", "trace", "smallest / largest"], rows))


if __name__ == "__main__":
    main()
