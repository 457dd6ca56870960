"""Label noise on digits: V-MCR², exact MCR² and cross-entropy side by side.

A share of the training labels is replaced by labels drawn from all ten classes (so a tenth of the replaced ones is
right by chance). Networks, seeds and noisy labels are the same for all; the settings are the estimators' defaults
on pixels / 16 (standardize=False) and were not chosen for noise.
25 % of the images, split by the seed, are the test set and keep their labels.

    python experiments/label_noise.py            # writes results/label-noise.json, prints the table
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from _study import run_all, save, spread, table

LEVELS = (0.0, 0.2, 0.4, 0.6)
NAMES = {
    "vmcr2": "V-MCR²",
    "mcr2": "exact MCR²",
    "ce": "cross-entropy, its head",
    "ce-subspace": "cross-entropy, nearest subspace",
}


def one(job: tuple[float, int]) -> list[dict[str, Any]]:
    """Accuracies of all objectives at one level of noise with one seed."""
    import numpy as np
    import torch
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from vmcr2.sklearn import RateReductionClassifier

    torch.set_num_threads(1)
    level, seed = job
    images, labels = load_digits(return_X_y=True)
    X, test, y, truth = train_test_split(images / 16, labels, test_size=0.25, stratify=labels, random_state=seed)
    rng = np.random.RandomState(seed)
    noisy = y.copy()
    replaced = rng.permutation(len(y))[: round(level * len(y))]
    noisy[replaced] = rng.randint(10, size=len(replaced))
    found = []
    for objective in ("vmcr2", "mcr2", "ce"):
        model = RateReductionClassifier(objective, standardize=False, random_state=seed).fit(X, noisy)
        scores = {objective: model.score(test, truth)}
        if objective == "ce":
            scores["ce-subspace"] = float(np.mean(model.residuals(test).argmin(axis=1) == truth))
        found += [{"method": name, "noise": level, "seed": seed, "accuracy": value} for name, value in scores.items()]
    return found


def main() -> None:
    """Run, save, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    jobs = list(itertools.product(LEVELS, range(options.seeds)))
    runs = [run for runs in run_all(one, jobs, options.workers) for run in runs]
    save("label-noise.json", {"data": "digits, 25 % test", "seeds": options.seeds, "runs": runs})
    rows = []
    for method, name in NAMES.items():
        cells = [[r["accuracy"] for r in runs if (r["method"], r["noise"]) == (method, level)] for level in LEVELS]
        rows.append([name, *map(spread, cells)])
    print(table(["test accuracy, labels replaced:", *(f"{level:.0%}" for level in LEVELS)], rows))


if __name__ == "__main__":
    main()
