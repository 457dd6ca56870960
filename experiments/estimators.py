"""The estimators with their defaults beside others: accuracy in five folds, clusters of the features, many classes.

    python -m experiments.estimators             # writes results/estimators.json, prints three tables

The folds, the splits and the seeds are the same for all methods. Digits are pixels / 16 with standardize=False; tables
are standardised for the methods that do not do it themselves.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from ._study import run_all, save, table

OBJECTIVES = {"auto": "auto, the default", "vmcr2": "V-MCR²", "mcr2": "exact MCR²", "ce": "cross-entropy, same network"}
METHODS = OBJECTIVES | {
    "svm": "RBF SVM",
    "subspace": "`NearestSubspaceClassifier`",
    "mean": "nearest class mean",
}
TABLES = ("digits", "wine", "breast cancer")
WIDTHS = (None, 20, 10)


def model_of(method: str, *, pixels: bool, seed: int = 0) -> Any:
    """A new classifier."""
    from sklearn.neighbors import NearestCentroid
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    from vmcr2.sklearn import NearestSubspaceClassifier, RateReductionClassifier

    if method in OBJECTIVES:
        return RateReductionClassifier(method, standardize=not pixels, random_state=seed)
    plain = {"svm": SVC, "subspace": NearestSubspaceClassifier, "mean": NearestCentroid}[method]()
    return plain if pixels else make_pipeline(StandardScaler(), plain)


def folds(job: tuple[str, str]) -> dict[str, Any]:
    """Mean accuracy and mean calibration error of a method on a table, in five folds."""
    import numpy as np
    import torch
    from sklearn.datasets import load_breast_cancer, load_digits, load_wine
    from sklearn.model_selection import StratifiedKFold

    torch.set_num_threads(1)
    data, method = job
    X, y = {"digits": load_digits, "wine": load_wine, "breast cancer": load_breast_cancer}[data](return_X_y=True)
    X = X / 16 if data == "digits" else X
    accuracy, calibration = [], []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        model = model_of(method, pixels=data == "digits").fit(X[train], y[train])
        accuracy.append(float(model.score(X[test], y[test])))
        if method in (*OBJECTIVES, "subspace"):
            probabilities = model.predict_proba(X[test])
            right = model.classes_[probabilities.argmax(axis=1)] == y[test]
            calibration.append(calibration_error(probabilities, right))
    found = {"data": data, "method": method, "accuracy": float(np.mean(accuracy)), "folds": accuracy}
    return found | ({"ece": float(np.mean(calibration))} if calibration else {})


def calibration_error(probabilities: Any, right: Any, bins: int = 15) -> float:
    """Σ_b (n_b/n)·|accuracy of b − mean confidence of b| over equal bins of the largest probability."""
    import numpy as np

    confidence = probabilities.max(axis=1)
    which = np.minimum((confidence * bins).astype(int), bins - 1)
    return float(
        sum(np.mean(which == b) * abs(right[which == b].mean() - confidence[which == b].mean()) for b in set(which))
    )


def clusters(job: tuple[int | None, int]) -> dict[str, Any]:
    """Adjusted Rand indices of 540 digits that were not trained on, by k-means and by |cosine|."""
    import numpy as np
    import torch
    from sklearn.cluster import KMeans, SpectralClustering
    from sklearn.datasets import load_digits
    from sklearn.metrics import adjusted_rand_score
    from sklearn.model_selection import train_test_split

    from vmcr2.sklearn import RateReductionEmbedding

    torch.set_num_threads(1)
    width, seed = job
    X, y = load_digits(return_X_y=True)
    train, test, labels, truth = train_test_split(X / 16, y, test_size=0.3, stratify=y, random_state=seed)
    z = RateReductionEmbedding(width, standardize=False, random_state=seed).fit(train, labels).transform(test)
    cosines = np.abs(z @ z.T)
    np.fill_diagonal(cosines, -1)
    spectral = SpectralClustering(10, affinity="precomputed", random_state=0).fit_predict(np.abs(z @ z.T))
    return {
        "features": z.shape[1],
        "seed": seed,
        "k-means": float(adjusted_rand_score(truth, KMeans(10, n_init=5, random_state=0).fit_predict(z))),
        "spectral": float(adjusted_rand_score(truth, spectral)),
        "pixels": float(adjusted_rand_score(truth, KMeans(10, n_init=5, random_state=0).fit_predict(test))),
        "nearest": float(np.mean(truth[cosines.argmax(axis=1)] == truth)),
    }


def many_classes(method: str) -> dict[str, Any]:
    """100 classes × 50 samples in 512 dimensions: three-dimensional subspaces and noise."""
    import numpy as np
    import torch

    torch.set_num_threads(1)
    rng = np.random.RandomState(0)
    bases = rng.randn(100, 3, 512) / np.sqrt(512)
    parts = []
    for samples in (50, 10):
        y = np.repeat(np.arange(100), samples)
        signal = np.einsum("nr,nrd->nd", rng.randn(len(y), 3), bases[y])
        parts.append((signal + rng.randn(len(y), 512) / np.sqrt(512), y))
    start = time.perf_counter()
    model = model_of(method, pixels=True).fit(*parts[0])
    accuracy = float(model.score(*parts[1]))
    return {"method": method, "accuracy": accuracy, "seconds": time.perf_counter() - start}


def main() -> None:
    """Run, save, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    workers = parser.parse_args().workers
    accuracy = run_all(folds, [(data, method) for data in TABLES for method in METHODS], workers)
    found = run_all(clusters, [(width, seed) for width in WIDTHS for seed in range(5)], workers)
    classes = run_all(many_classes, list(METHODS), workers)
    save("estimators.json", {"accuracy": accuracy, "clusters": found, "many classes": classes})
    cells = {(row["data"], row["method"]): row for row in accuracy}
    rows = []
    for method, name in METHODS.items():
        of = [cells[data, method] for data in TABLES]
        rows.append([name, *(f"{c['accuracy']:.3f}" + (f" ({c['ece']:.3f})" if "ece" in c else "") for c in of)])
    print(table(["mean accuracy (mean ECE)", *TABLES], rows) + "\n")

    def over(name: str, width: int | None = None) -> str:
        values = [row[name] for row in found if width is None or row["features"] == width]
        return f"{sum(values) / len(values):.2f} ({min(values):.2f} to {max(values):.2f})"

    widths = sorted({row["features"] for row in found}, reverse=True)
    rows = [["pixels", over("pixels"), "–", "–"]]
    rows += [[f"features, {w}", over("k-means", w), over("spectral", w), over("nearest", w)] for w in widths]
    print(table(["mean of 5 splits (range)", "k-means", "spectral, abs(cosine)", "nearest neighbour"], rows) + "\n")
    ranked = sorted(classes, key=lambda row: -row["accuracy"])
    rows = [[METHODS[row["method"]], f"{row['accuracy']:.3f}", f"{row['seconds']:.1f}"] for row in ranked]
    print(table(["100 classes", "accuracy", "seconds"], rows))


if __name__ == "__main__":
    main()
