"""Label noise: V-MCR², exact MCR² and cross-entropy side by side, on digits or MNIST.

A share of the training labels is replaced by labels drawn from all ten classes (so a tenth of the replaced ones is
right by chance). Networks, seeds and noisy labels are the same for all; the settings are the estimators' defaults
on pixels / 16 (standardize=False) and were not chosen for noise.
Of digits, 25 % of the images, split by the seed, are the test set and keep their labels. Of MNIST, 10,000 training
images drawn by the seed, and all 10,000 test images, as 784 numbers each.

    python -m experiments.label_noise           # writes results/label-noise.json, prints the table
    python -m experiments.label_noise --mnist FOLDER --seeds 3      # results/label-noise-mnist.json
"""

from __future__ import annotations

import argparse
import gzip
import itertools
from pathlib import Path
from typing import Any

from ._study import run_all, save, spread, table

LEVELS = (0.0, 0.2, 0.4, 0.6)
NAMES = {
    "auto": "auto: cross-entropy + exact MCR²",
    "vmcr2": "V-MCR²",
    "mcr2": "exact MCR²",
    "ce": "cross-entropy, its head",
    "ce-subspace": "cross-entropy, nearest subspace",
}


def read(folder: str | None, seed: int) -> Any:
    """Training images and labels, test images and labels."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    if folder is None:
        images, labels = load_digits(return_X_y=True)
        X, test, y, truth = train_test_split(images / 16, labels, test_size=0.25, stratify=labels, random_state=seed)
        return X, y, test, truth
    parts = []
    for part in ("train", "t10k"):
        for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
            content = gzip.decompress((Path(folder) / f"{part}-{kind}-ubyte.gz").read_bytes())
            numbers = np.frombuffer(content, np.uint8, offset=header)
            parts.append(numbers.reshape(-1, 784) / 255 if header == 16 else numbers.astype(int))
    rows = np.random.RandomState(seed).permutation(len(parts[1]))[:10_000]
    return parts[0][rows], parts[1][rows], parts[2], parts[3]


def one(job: tuple[float, int, str | None]) -> list[dict[str, Any]]:
    """Accuracies of all objectives at one level of noise with one seed."""
    import numpy as np
    import torch

    from vmcr2.sklearn import RateReductionClassifier

    torch.set_num_threads(1)
    level, seed, folder = job
    X, y, test, truth = read(folder, seed)
    rng = np.random.RandomState(seed)
    noisy = y.copy()
    replaced = rng.permutation(len(y))[: round(level * len(y))]
    noisy[replaced] = rng.randint(10, size=len(replaced))
    found = []
    for objective in ("auto", "vmcr2", "mcr2", "ce"):
        model = RateReductionClassifier(objective, standardize=False, random_state=seed).fit(X, noisy)
        scores = {objective: model.score(test, truth)}
        if objective == "ce":
            scores["ce-subspace"] = float(np.mean(model.residuals(test).argmin(axis=1) == truth))
        found += [{"method": name, "noise": level, "seed": seed, "accuracy": value} for name, value in scores.items()]
    return found


def main() -> None:
    """Run, save, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mnist", help="a folder with MNIST's four .gz files, instead of digits")
    options = parser.parse_args()
    jobs = list(itertools.product(LEVELS, range(options.seeds), [options.mnist]))
    runs = [run for runs in run_all(one, jobs, options.workers) for run in runs]
    data = "MNIST, 10,000 training images, 10,000 test" if options.mnist else "digits, 25 % test"
    name = "label-noise-mnist.json" if options.mnist else "label-noise.json"
    if options.seeds >= (3 if options.mnist else 5):  # a shorter study does not replace the results of the whole
        save(name, {"data": data, "seeds": options.seeds, "runs": runs})
    rows = []
    for method, name in NAMES.items():
        cells = [[r["accuracy"] for r in runs if (r["method"], r["noise"]) == (method, level)] for level in LEVELS]
        rows.append([name, *map(spread, cells)])
    print(table(["test accuracy, labels replaced:", *(f"{level:.0%}" for level in LEVELS)], rows))


if __name__ == "__main__":
    main()
