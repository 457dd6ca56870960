"""hypothesis drives the scikit-learn estimators: tables of all sizes and scales, odd settings, odd class names."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from batches import ODD_NUMBERS, attempt, driven
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from vmcr2.sklearn import NearestSubspaceClassifier, RateReductionClassifier, RateReductionEmbedding

FORMS = ("normal", "constant", "identical rows", "one column", "flags", "wide range", "duplicates")
NAMES: tuple[Any, ...] = (np.arange(6), np.array(list("abcdef")), np.array([-3, 0, 7, 10**12, 5, 1]), np.arange(6) / 2)


@st.composite
def tables(draw: st.DrawFn) -> tuple[NDArray[Any], NDArray[Any]]:
    n, columns, classes = draw(st.integers(1, 30)), draw(st.integers(1, 8)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    form = draw(st.sampled_from(FORMS))
    x = rng.standard_normal((n, columns))
    if form == "constant":
        x[:, 0] = 3.0
    elif form == "identical rows":
        x[:] = x[0]
    elif form == "one column":
        x = x[:, :1]
    elif form == "flags":
        x = (x > 0.5).astype(float)
    elif form == "wide range":
        x *= 10.0 ** rng.integers(-12, 12, columns)
    elif form == "duplicates":
        x = x[rng.integers(0, max(1, n // 3), n)]
    x *= draw(st.sampled_from([1.0, 1.0, 1e-30, 1e-6, 1e6, 1e12, 1e30, 1e120]))
    kind = draw(st.sampled_from(["f8", "f8", "f4", "i8"]))
    with np.errstate(all="ignore"):
        x = np.clip(x, -9e18, 9e18).astype(kind) if kind == "i8" else x.astype(kind)
    if kind == "f8" and draw(st.integers(0, 15)) == 0:
        x[rng.integers(len(x)), 0] = draw(st.sampled_from([np.nan, np.inf, 1e308]))
    names = draw(st.sampled_from(NAMES))
    return x, names[rng.integers(0, classes, n)]


TRAINED: dict[str, st.SearchStrategy[Any]] = {
    "objective": st.sampled_from(["auto", "vmcr2", "mcr2", "ce", "ce+mcr2", "ce+vmcr2"]),
    "dim": st.one_of(st.none(), st.integers(1, 12)),
    "lr": st.one_of(st.none(), ODD_NUMBERS),
    "weight_decay": st.one_of(st.none(), ODD_NUMBERS),
    "batch_size": st.one_of(st.none(), st.integers(1, 40)),
    "eps_sq": ODD_NUMBERS,
    "random_state": st.integers(0, 5),
}


def fitted(model: Any, x: NDArray[Any], y: NDArray[Any]) -> Any:
    """The model, or None if the data or the settings were refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return attempt(lambda: model.fit(x, y))


def assert_probabilities(model: Any, x: NDArray[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = attempt(lambda: model.predict_proba(x))
        if found is None:
            return
        assert np.isfinite(found).all()
        assert np.allclose(found.sum(1), 1.0, atol=1e-5)
        assert found.min() >= 0
        assert set(model.predict(x)) <= set(model.classes_)


@driven(slow=True)
@given(tables(), st.one_of(st.none(), st.integers(0, 9)), st.booleans(), st.sampled_from([None, "balanced"]))
def test_the_subspace_classifier(
    table: tuple[NDArray[Any], NDArray[Any]], components: int | None, intercept: bool, weights: Any
) -> None:
    x, y = table
    model = NearestSubspaceClassifier(components, fit_intercept=intercept, class_weight=weights)
    if fitted(model, x, y) is not None:
        assert_probabilities(model, x)


def few(model: Any, options: dict[str, Any]) -> Any:
    known = model().get_params()
    return model(epochs=2, hidden=(6,), **{name: value for name, value in options.items() if name in known})


@driven(slow=True)
@given(tables(), st.fixed_dictionaries({}, optional=TRAINED))
def test_the_classifier(table: tuple[NDArray[Any], NDArray[Any]], options: dict[str, Any]) -> None:
    x, y = table
    model = few(RateReductionClassifier, options)
    if fitted(model, x, y) is not None:
        assert_probabilities(model, x)


@driven(slow=True)
@given(tables(), st.fixed_dictionaries({}, optional=TRAINED))
def test_the_embedding(table: tuple[NDArray[Any], NDArray[Any]], options: dict[str, Any]) -> None:
    x, y = table
    model = few(RateReductionEmbedding, options)
    if fitted(model, x, y) is None:
        return
    features = model.transform(x)
    assert np.isfinite(features).all()
    lengths = np.linalg.norm(features, axis=1)
    assert (np.minimum(abs(lengths - 1), lengths) < 1e-3).all()
