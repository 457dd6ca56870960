"""Estimators in a notebook: scikit-learn's own picture stays, and a fitted one says what it has learned."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

from vmcr2.sklearn import NearestSubspaceClassifier, RateReductionClassifier, RateReductionEmbedding

ESTIMATORS = [
    RateReductionClassifier(epochs=2, random_state=0),
    RateReductionEmbedding(6, epochs=2, random_state=0),
    NearestSubspaceClassifier(n_components=1),
]
X = np.random.default_rng(0).normal(size=(40, 4)) + np.repeat(np.eye(4)[:2], 20, axis=0) * 4
Y = np.repeat(["<b>low</b>", "high & dry"], 20)


@pytest.fixture(params=ESTIMATORS, ids=lambda one: type(one).__name__)
def estimator(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    return request.param


@pytest.mark.filterwarnings("ignore::vmcr2.CollapseWarning")
def test_what_was_learned_stands_under_scikit_learn_s_picture(estimator) -> None:  # type: ignore[no-untyped-def]
    fresh = clone(estimator)
    assert fresh._repr_html_().count("sk-top-container") >= 1
    assert "has learned" not in fresh._repr_html_()
    fresh.fit(X, Y)
    for html in (fresh._repr_html_(), fresh._repr_mimebundle_()["text/html"]):
        assert html.count(f"What {type(fresh).__name__} has learned") == 1
        learned = html[html.index("has learned") :]
        assert "2: &lt;b&gt;low&lt;/b&gt;, high &amp; dry" in learned
        assert "<b>low" not in learned
        assert "4 columns" in learned
    assert fresh._repr_mimebundle_()["text/plain"] == repr(fresh)
    assert "has learned" not in estimator_html_repr(make_pipeline(StandardScaler(), fresh))


@pytest.mark.filterwarnings("ignore::vmcr2.CollapseWarning")
def test_display_as_text_is_respected(estimator) -> None:  # type: ignore[no-untyped-def]
    fitted = clone(estimator).fit(X, Y)
    with config_context(display="text"):
        assert not hasattr(fitted, "_repr_html_")
        assert set(fitted._repr_mimebundle_()) == {"text/plain"}


def test_what_auto_chose_is_shown() -> None:
    model = RateReductionClassifier(epochs=12, random_state=0).fit(X, Y)
    learned = model._repr_html_().split("has learned")[1]
    assert model.objective_ in learned
    assert f">{model.readout_}<" in learned
    assert f"to {model.transform(X).shape[1]} unit features" in learned
