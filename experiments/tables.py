"""The estimators' defaults on tables: public, scikit-learn's own and generated ones, beside other classifiers.

    python -m experiments.tables                        # writes results/tables.json, prints two tables
    python -m experiments.tables --tables ../tables     # the folder with the eight .csv files

Three folds for each of three seeds, the same for all methods. Words become one column each, a gap becomes the median
and a column that marks it. Large tables are cut to 1000 rows by the seed. Classes of `winequality-white` and `abalone`
are numbers in order; the outer 3 % on either side join the next class.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from ._study import run_all, save, table

OURS = {
    "auto": "auto (the default)",
    "mcr2": "exact MCR²",
    "vmcr2": "V-MCR²",
    "ce+mcr2": "cross-entropy + exact",
    "ce+vmcr2": "cross-entropy + V-MCR²",
    "ce": "cross-entropy, same network",
}
METHODS = OURS | {
    "subspace": "nearest subspace of the columns",
    "svm": "RBF SVM",
    "tuned svm": "RBF SVM, C tuned",
    "logistic": "logistic regression",
}
LEFT_OUT = ("ce+mcr2", "ce+vmcr2")
"""Methods that are measured only if they are named: ``auto`` is one of them."""
FILES = (
    "abalone",
    "breast-cancer-wisconsin",
    "german",
    "haberman",
    "horse-colic",
    "oil-spill",
    "pima-indians-diabetes",
    "winequality-white",
)
OWN = ("iris", "wine", "breast_cancer", "digits")
GENERATED = ("1 in 50", "5 per class", "200 noise columns", "collinear", "100 classes")
UNBALANCED = ("oil-spill", "1 in 50")
ORDERED = ("abalone", "winequality-white")
COLIC_CLASS = 23
"""The column of horse-colic's class: whether the lesion is surgical."""
COLIC_LEFT_OUT = (2, 24, 25, 26, 27)
"""The case number, and what was found out about the lesion later."""
ROWS = 1000
SEEDS = 3
FOLDS = 3


class Table(NamedTuple):
    """Rows of numbers with gaps, and classes."""

    X: Any
    y: Any
    few: bool = False
    """Train on one fold and test on the others."""


def read(folder: Path, name: str) -> Table:
    """A .csv: the class is the last column; words become one column per word, "?" becomes a gap."""
    import numpy as np

    rows = np.array(list(csv.reader((folder / f"{name}.csv").open())))
    colic = name == "horse-colic"
    y = rows[:, COLIC_CLASS if colic else -1]
    out = {COLIC_CLASS, *COLIC_LEFT_OUT} if colic else {rows.shape[1] - 1}
    columns: list[Any] = []
    for column in (rows[:, i] for i in range(rows.shape[1]) if i not in out):
        try:
            columns.append(np.array([np.nan if value == "?" else float(value) for value in column]))
        except ValueError:
            columns += [(column == word).astype(float) for word in sorted(set(column))]
    if name in ORDERED:
        number = y.astype(int)
        y = number.clip(*np.quantile(number, (0.03, 0.97), method="inverted_cdf"))
    return Table(np.column_stack(columns), y)


def generate(name: str, seed: int) -> Table:
    """A table whose difficulty is known: see the names."""
    import numpy as np
    from sklearn.datasets import make_classification

    sizes: dict[str, dict[str, Any]] = {
        "1 in 50": {"n_samples": 1000, "n_features": 10, "n_informative": 5, "weights": [0.98], "flip_y": 0.0},
        "5 per class": {"n_samples": 150, "n_classes": 10, "n_features": 20, "n_informative": 10},
        "200 noise columns": {"n_samples": 600, "n_features": 210, "n_informative": 8, "n_redundant": 2},
        "collinear": {"n_samples": 600, "n_features": 50, "n_informative": 8, "n_redundant": 42, "n_classes": 3},
        "100 classes": {"n_samples": 1200, "n_classes": 100, "n_features": 30, "n_informative": 20},
    }
    size = sizes[name]
    many = {"n_clusters_per_class": 1, "class_sep": 2.0} if size.get("n_classes", 2) > 3 else {}
    X, y = make_classification(random_state=seed, **({"n_redundant": 0, "flip_y": 0.01} | many | size))
    if name == "collinear":
        X = X + 1e-3 * np.random.RandomState(seed).randn(*X.shape)
    return Table(X, y, few=name == "5 per class")


def load(folder: Path, name: str, seed: int) -> Table:
    """A table, cut by the seed."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    if name in GENERATED:
        return generate(name, seed)
    own = name in OWN
    found = Table(*getattr(datasets, f"load_{name}")(return_X_y=True)) if own else read(folder, name)
    if len(found.y) <= ROWS:
        return found
    X, _, y, _ = train_test_split(found.X, found.y, train_size=ROWS, stratify=found.y, random_state=seed)
    return Table(X, y)


def model_of(method: str, seed: int) -> Any:
    """A new classifier behind the same treatment of gaps."""
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    from vmcr2.sklearn import NearestSubspaceClassifier, RateReductionClassifier

    fill = SimpleImputer(strategy="median", add_indicator=True)
    if method in OURS:
        return make_pipeline(fill, RateReductionClassifier(method, random_state=seed))
    plain = {
        "subspace": NearestSubspaceClassifier(),
        "svm": SVC(),
        "tuned svm": GridSearchCV(SVC(), {"C": [0.1, 1, 10, 100]}, cv=3),
        "logistic": LogisticRegression(max_iter=1000),
    }[method]
    return make_pipeline(fill, StandardScaler(), plain)


def measure(job: tuple[str, str, str, int]) -> dict[str, Any]:
    """Mean accuracy, balanced accuracy and seconds of a fit, over the folds of one seed."""
    import numpy as np
    import torch
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.model_selection import StratifiedKFold

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # folds with few samples of a class, and solvers that stop: the figures tell
    folder, name, method, seed = job
    X, y, few = load(Path(folder), name, seed)
    accuracy, balanced, seconds = [], [], []
    for large, small in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(X, y):
        train, test = (small, large) if few else (large, small)
        start = time.perf_counter()
        model = model_of(method, seed).fit(X[train], y[train])
        seconds.append(time.perf_counter() - start)
        predicted = model.predict(X[test])
        accuracy.append(float(np.mean(predicted == y[test])))
        balanced.append(float(balanced_accuracy_score(y[test], predicted)))
    return {
        "table": name,
        "method": method,
        "seed": seed,
        "rows": len(y),
        "columns": X.shape[1],
        "classes": len(set(y.tolist())),
        "largest class": float(np.unique(y, return_counts=True)[1].max() / len(y)),
        "accuracy": float(np.mean(accuracy)),
        "balanced": float(np.mean(balanced)),
        "seconds": float(np.mean(seconds)),
    }


def mean(found: list[dict[str, Any]], figure: str, **where: str) -> float:
    """Of all results with these values."""
    values = [row[figure] for row in found if all(row[name] == value for name, value in where.items())]
    return float(sum(values) / len(values))


def main() -> None:
    """Run, save, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", default="../shared/data/tables", help="the folder with the .csv files")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--methods", nargs="+", default=[m for m in METHODS if m not in LEFT_OUT], choices=METHODS)
    given = parser.parse_args()
    names = [*FILES, *OWN, *GENERATED]
    jobs = [(given.tables, n, method, s) for n in names for method in given.methods for s in range(given.seeds)]
    start = time.perf_counter()
    found = run_all(measure, jobs, given.workers)
    save("tables.json", {"seconds": time.perf_counter() - start, "workers": given.workers, "results": found})
    rows = []
    for name in names:
        share = mean(found, "largest class", table=name)
        cells = [f"{mean(found, 'accuracy', table=name, method=method):.3f}" for method in given.methods]
        rows.append([name, f"{share:.3f}", *cells])
    for title, figure, digits in (
        ("mean", "accuracy", 3),
        ("mean, balanced", "balanced", 3),
        ("seconds", "seconds", 2),
    ):
        rows.append([title, "", *(f"{mean(found, figure, method=method):.{digits}f}" for method in given.methods)])
    print(table(["accuracy", "largest class", *(METHODS[method] for method in given.methods)], rows) + "\n")
    rows = [
        [name, *(f"{mean(found, 'balanced', table=name, method=method):.3f}" for method in given.methods)]
        for name in UNBALANCED
    ]
    print(table(["balanced accuracy", *(METHODS[method] for method in given.methods)], rows))


if __name__ == "__main__":
    main()
