"""What is wrong with the input is said in one sentence, by the error that scikit-learn's users expect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from vmcr2.classifiers import NearestSubspace
from vmcr2.sklearn import NearestSubspaceClassifier, RateReductionClassifier, RateReductionEmbedding

ALL = [
    NearestSubspaceClassifier(),
    RateReductionClassifier(epochs=2, hidden=(8,)),
    RateReductionEmbedding(epochs=2, hidden=(8,)),
]
TRAINED = ALL[1:]
CLASSIFIERS = ALL[:2]
X = np.random.RandomState(0).randn(20, 4)
y = np.arange(20) % 2


def named(estimator: Any) -> str:
    return type(estimator).__name__


@pytest.mark.parametrize("estimator", ALL, ids=named)
def test_one_class(estimator: Any) -> None:
    with pytest.raises(ValueError, match="needs samples of at least two classes, but y has one class: 'a'"):
        estimator.fit(X, ["a"] * 20)


@pytest.mark.parametrize("estimator", TRAINED, ids=named)
def test_a_class_with_one_sample(estimator: Any) -> None:
    fresh = clone(estimator)
    with pytest.warns(UserWarning, match="these classes have one sample, so their subspaces are lines: 7; add samples"):
        fresh.fit(X, [7, *y[1:]])
    assert fresh.classes_.tolist() == [0, 1, 7]


def test_one_sample_spans_a_line() -> None:
    model = NearestSubspaceClassifier(fit_intercept=False).fit(np.eye(3), ["a", "b", "c"])
    assert model.predict([[0, 2, 0.5]]).tolist() == ["b"]


@pytest.mark.parametrize("estimator", ALL, ids=named)
def test_nan(estimator: Any) -> None:
    with pytest.raises(ValueError, match="contains NaN"):
        estimator.fit(np.where(X > 2, np.nan, X), y)


@pytest.mark.parametrize("estimator", ALL, ids=named)
def test_not_fitted(estimator: Any) -> None:
    fresh = type(estimator)()
    with pytest.raises(NotFittedError):
        (fresh.transform if hasattr(fresh, "transform") else fresh.predict)(X)


def test_more_components_than_dimensions() -> None:
    with pytest.raises(ValueError, match="n_components must lie between 1 and 5, the number of dimensions, got 6"):
        NearestSubspaceClassifier(6).fit(X, y)
    with pytest.raises(ValueError, match=r"between 1 and 26, the number of dimensions \(dim\), got 200"):
        RateReductionClassifier(n_components=200).fit(X, y)


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=named)
def test_unseen_labels_in_score(estimator: Any) -> None:
    estimator.fit(X, y)
    with pytest.raises(ValueError, match="y contains labels that were not seen in fit: 5"):
        estimator.score(X, np.where(np.arange(20) == 3, 5, y))
    with pytest.raises(ValueError, match="not seen in fit: 'cat'"):
        estimator.score(X[:1], ["cat"])


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=named)
def test_partial_fit_needs_its_classes(estimator: Any) -> None:
    fresh = type(estimator)()
    with pytest.raises(ValueError, match="the first call of partial_fit needs classes"):
        fresh.partial_fit(X, y)
    fresh.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="labels that are not among classes: 2"):
        fresh.partial_fit(X, y + 1)
    with pytest.raises(ValueError, match="give a dict of weights"):
        type(estimator)(class_weight="balanced").partial_fit(X, y, classes=[0, 1])


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=named)
def test_a_first_batch_that_fails_leaves_nothing_behind(estimator: Any) -> None:
    fresh = clone(estimator)
    with pytest.raises(ValueError, match="labels that are not among classes: 2"):
        fresh.partial_fit(X, y + 1, classes=[0, 1])
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    with pytest.raises(ValueError, match="the first call of partial_fit needs classes"):
        fresh.partial_fit(X, y)
    wide = np.column_stack([X, y])
    fresh.partial_fit(wide, y + 1, classes=[1, 2])
    assert fresh.classes_.tolist() == [1, 2]
    assert set(fresh.partial_fit(wide, y + 1).predict(wide)) <= {1, 2}


@pytest.mark.parametrize("objective", ["vmcr2", "mcr2", "ce", "ce+mcr2", "ce+vmcr2"])
def test_a_first_batch_that_diverges_leaves_nothing_behind(objective: str) -> None:
    good = RateReductionClassifier(objective, lr=0.1, hidden=(8,), random_state=0)
    model = clone(good).set_params(lr=1e30)
    with pytest.raises(ValueError, match=r"training broke in epoch 1, not finite: .*: choose a smaller lr than 1e"):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.set_params(lr=0.1).partial_fit(X, y, classes=[0, 1])
    assert np.array_equal(model.predict_proba(X), good.partial_fit(X, y, classes=[0, 1]).predict_proba(X))


@pytest.mark.parametrize("objective", ["vmcr2", "mcr2", "ce", "ce+mcr2", "ce+vmcr2"])
@pytest.mark.parametrize("begin", ["fit", "partial_fit"])
def test_a_later_batch_that_diverges_is_as_if_it_had_not_come(
    objective: str, begin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun() -> RateReductionClassifier:
        model = RateReductionClassifier(objective, lr=0.1, epochs=2, hidden=(8,), random_state=0)
        return model.fit(X, y) if begin == "fit" else model.partial_fit(X, y, classes=[0, 1])

    model, spared = begun(), begun()
    before = model.predict_proba(X)

    def breaks(self: Any, *arguments: Any) -> float:
        raise ValueError("after the steps were made")

    with monkeypatch.context() as patch:
        patch.setattr("vmcr2.sklearn._training.Trainer.loss", breaks)
        with pytest.raises(ValueError, match="after the steps were made"):
            model.partial_fit(X[:10], y[:10])
    if begin == "fit":  # its rate is set when the batches begin
        with pytest.raises(ValueError, match="training broke"):
            model.set_params(lr=1e30).partial_fit(X, y)
    assert np.array_equal(model.predict_proba(X), before)
    again = model.set_params(lr=0.1).partial_fit(X, y).predict_proba(X)
    assert np.array_equal(again, spared.partial_fit(X, y).predict_proba(X))
    assert not np.array_equal(again, before)


def test_a_batch_that_cannot_be_added_leaves_the_subspaces(monkeypatch: pytest.MonkeyPatch) -> None:
    model, spared = (NearestSubspaceClassifier().partial_fit(X, y, classes=[0, 1]) for _ in range(2))
    add = NearestSubspace.partial_fit

    def breaks(self: NearestSubspace, *arguments: Any) -> None:
        add(self, *arguments)
        raise ValueError("after the batch was added")

    with monkeypatch.context() as patch:
        patch.setattr(NearestSubspace, "partial_fit", breaks)
        with pytest.raises(ValueError, match="after the batch was added"):
            model.partial_fit(1 - X, y)
    assert np.array_equal(model.predict_proba(X), spared.predict_proba(X))
    later = model.partial_fit(X[:20], y[:20]).predict_proba(X)
    assert np.array_equal(later, spared.partial_fit(X[:20], y[:20]).predict_proba(X))


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=named)
@pytest.mark.parametrize("begin", ["fit", "partial_fit"])
def test_later_classes_must_be_the_same(estimator: Any, begin: str) -> None:
    model = clone(estimator)
    model = model.fit(X, y) if begin == "fit" else model.partial_fit(X, y, classes=[0, 1])
    before = model.partial_fit(X, y, classes=np.array([1, 0])).predict_proba(X)
    for other in ([0, 1, 2], [0], ["a", "b"]):
        with pytest.raises(ValueError, match=r"is not the same as on last call to partial_fit, was: \[0, 1\]"):
            model.partial_fit(X, y, classes=other)
    assert np.array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize(
    ("estimator", "bad"),
    [
        (ALL[0], {"n_components": 99}),
        (ALL[0], {"class_weight": {5: 0}}),
        (ALL[1], {"epochs": 0}),
        (ALL[1], {"lr": 1e30}),
        (ALL[1], {"class_weight": {5: 0}}),
        (ALL[2], {"epochs": 0}),
        (ALL[2], {"lr": 1e30}),
    ],
)
def test_a_fit_that_fails_changes_nothing(estimator: Any, bad: dict[str, Any]) -> None:
    def output() -> np.ndarray:
        return model.transform(X) if hasattr(model, "transform") else model.predict_proba(X)

    model = clone(estimator).set_params(**bad)
    with pytest.raises(ValueError, match=next(iter(bad))):
        model.fit(X, y + 5)
    with pytest.raises(NotFittedError):
        output()
    model = clone(estimator).fit(X, y)
    before = output()
    with pytest.raises(ValueError, match=next(iter(bad))):
        model.set_params(**bad).fit(2 - X[:, 1:], y + 5)
    assert model.classes_.tolist() == [0, 1]
    assert np.array_equal(output(), before), "its number of columns too"


def test_rows_that_overflow_on_the_way_change_nothing() -> None:
    model = NearestSubspaceClassifier()
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="NaN or inf"):
        model.fit(X * 1e200, y)
    with pytest.raises(NotFittedError):
        model.predict(X)
    before = model.fit(X, y).predict_proba(X)
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="NaN or inf"):
        model.fit(X * 1e200, y + 5)
    assert np.array_equal(model.predict_proba(X), before)
    assert model.classes_.tolist() == [0, 1]


@pytest.mark.parametrize("objective", ["vmcr2", "mcr2"])
def test_sample_weights_where_the_maths_has_none(objective: str) -> None:
    with pytest.raises(ValueError, match="a coding rate belongs to a set of points and has no term per sample"):
        RateReductionClassifier(objective).fit(X, y, sample_weight=np.ones(20))
    with pytest.raises(TypeError, match="unexpected argument 'weights'"):
        RateReductionClassifier(objective).fit(X, y, weights=np.ones(20))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": "mcr3"}, "objective must be one of auto, vmcr2, mcr2, ce, .*got 'mcr3'"),
        ({"epochs": 0}, "epochs must be a whole number above 0, got 0"),
        ({"lr": -1.0}, "lr must be a number above 0, got -1.0"),
        ({"dim": 2.5}, "dim must be a whole number above 0, got 2.5"),
        ({"dim": "a"}, "dim must be a whole number above 0, got 'a'"),
        ({"dim": True}, "dim must be a whole number above 0, got True"),
        ({"n_components": "a"}, "n_components must be a whole number above 0, got 'a'"),
        ({"n_iter_no_change": 0}, "n_iter_no_change must be a whole number above 0, got 0"),
        ({"hidden": 64}, r"hidden must be whole numbers above 0, one per layer, such as \(256, 256\), got 64"),
        ({"hidden": (8, 0)}, r"hidden must be whole numbers above 0, .* got \(8, 0\)"),
        ({"hidden": None}, "hidden must be whole numbers above 0, .* got None"),
        ({"weight_decay": "a"}, "weight_decay must be a number of at least 0, got 'a'"),
        ({"batch_expansion": -1}, "batch_expansion must be a number of at least 0, got -1"),
        ({"device": "cuda:99"}, "device must be one that torch can use here, such as 'auto' or 'cpu', got 'cuda:99'"),
        ({"device": "gpu"}, "device must be one that torch can use here, such as 'auto' or 'cpu', got 'gpu'"),
        ({"device": None}, "device must be one that torch can use here, such as 'auto' or 'cpu', got None"),
        ({"validation_fraction": 1.0}, "validation_fraction must be below 1, got 1.0"),
        ({"validation_fraction": "a"}, "validation_fraction must be a number of at least 0, got 'a'"),
        ({"lr": 1e30, "epochs": 20}, "training broke in epoch 1, not finite: .*: choose a smaller lr"),
    ],
)
def test_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RateReductionClassifier(**arguments).fit(X, y)


def test_arguments_of_the_others() -> None:
    with pytest.raises(ValueError, match="n_components must be a whole number above 0, got 'a'"):
        RateReductionEmbedding("a").fit(X, y)
    with pytest.raises(ValueError, match=r"n_components must be a whole number above 0, got 2\.5"):
        NearestSubspaceClassifier(2.5).fit(X, y)
    with pytest.raises(TypeError, match=r"network must be a torch\.nn\.Module or a function that returns one, got int"):
        RateReductionClassifier(network=3).fit(X, y)


def test_refusals_that_make_no_sense() -> None:
    model = NearestSubspaceClassifier().fit(X, y)
    with pytest.raises(ValueError, match="reject must lie between 0 and 1"):
        model.predict(X, reject=1.5)
    with pytest.raises(ValueError, match="reject_label 1 is the name of a class"):
        model.predict(X, reject=0.5, reject_label=1)
    with pytest.raises(ValueError, match="reject_label -1 is the name of a class"):
        NearestSubspaceClassifier().fit(X, 2 * y - 1).predict(X[:1], reject=0.5)
    with pytest.raises(ValueError, match="no value for refused points: give reject_label="):
        NearestSubspaceClassifier().fit(X, y == 1).predict(X, reject=0.5)
