"""Classes never seen, on digits: are points of three left-out classes further from the subspaces than known ones?

For every triple the networks are trained on the other seven classes; AUROC of the novelty score on the test images,
left-out classes against known ones. Cross-entropy: 1 − the largest softmax of a network of the same size (and, beside
it, the residual to the subspaces of its features). Settings are the estimators' defaults on
pixels / 16 (standardize=False) and were not chosen for this.

    python -m experiments.refusal                # writes results/refusal.json, prints the table
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from ._study import run_all, save, table

NAMES = {
    "auto": "auto (cross-entropy + exact MCR²), residual",
    "vmcr2": "V-MCR², residual",
    "mcr2": "exact MCR², residual",
    "ce": "cross-entropy, largest softmax",
    "ce-subspace": "cross-entropy, residual",
    "pixels": "no network: nearest subspace of the pixels, residual",
}


def one(triple: tuple[int, int, int]) -> dict[str, Any]:
    """AUROC of every method with these classes left out."""
    import numpy as np
    import torch
    from sklearn.datasets import load_digits
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import train_test_split

    from vmcr2.sklearn import NearestSubspaceClassifier, RateReductionClassifier

    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    X, test, y, truth = train_test_split(images / 16, labels, test_size=0.25, stratify=labels, random_state=0)
    known, foreign = ~np.isin(y, triple), np.isin(truth, triple)
    scores, accuracy = {}, {}
    for objective in ("auto", "vmcr2", "mcr2", "ce"):
        model = RateReductionClassifier(objective, standardize=False, random_state=0).fit(X[known], y[known])
        scores[objective] = model.novelty_score(test)
        accuracy[objective] = model.score(test[~foreign], truth[~foreign])
        if objective == "ce":
            scores["ce-subspace"] = model.residuals(test).min(axis=1)
    scores["pixels"] = NearestSubspaceClassifier().fit(X[known], y[known]).novelty_score(test)
    auroc = {name: float(roc_auc_score(foreign, score)) for name, score in scores.items()}
    return {"left_out": list(triple), "auroc": auroc, "accuracy_on_known": accuracy}


def main() -> None:
    """Run, save, print."""
    import numpy as np

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--triples", type=int, default=120, help="how many of the 120, drawn by seed 0")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    triples = list(itertools.combinations(range(10), 3))
    chosen = np.random.RandomState(0).permutation(len(triples))[: options.triples]
    runs = run_all(one, [triples[i] for i in chosen], options.workers)
    if len(runs) == len(triples):  # a shorter study does not replace the results of the whole
        data = "digits, 25 % test, split and training seed 0"
        save("refusal.json", {"data": data, "triples": len(runs), "runs": runs})
    rows = []
    for method, name in NAMES.items():
        values = np.array([run["auroc"][method] for run in runs])
        ahead = int(sum(values > [run["auroc"]["ce"] for run in runs]))
        rows.append(
            [
                name,
                f"{values.mean():.3f} ± {values.std(ddof=1):.3f}",
                f"{values.min():.3f}",
                "–" if method == "ce" else f"{ahead} of {len(runs)}",
            ]
        )
    print(table(["AUROC of the left-out classes", "mean ± std over triples", "worst", "above the softmax"], rows))


if __name__ == "__main__":
    main()
