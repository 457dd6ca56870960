"""An estimator in a notebook: scikit-learn's own picture, and under it what a fitted one has learned."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .._shared import facts_html, listed

_FACTS = {
    "objective_": "objective",
    "readout_": "predicts by",
    "n_iter_": "epochs",
    "temperature_": "temperature T",
    "prior_share_": "share of the class sizes, β",
}


class LearnedInNotebooks:
    """Adds to the HTML that :class:`sklearn.base.BaseEstimator` makes, where ``set_config(display="diagram")`` asks
    for it. Inside a pipeline scikit-learn draws its own picture alone."""

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + learned_html(self)  # type: ignore[misc]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] += learned_html(self)
        return bundle


def learned_html(estimator: Any) -> str:
    """Classes, features, and what "auto" has chosen; empty if it is not fitted."""
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return ""
    names = [str(name) for name in estimator.classes_]
    subspaces = getattr(estimator, "classifier_", None) or getattr(estimator, "subspaces_", None)
    facts = [
        ("classes", f"{len(names):,}: {listed(names, most=10)}"),
        ("features", _features(estimator)),
        ("dimensions of a class", "" if subspaces is None else str(subspaces.bases.shape[2])),
    ]
    facts += [(words, _shown(getattr(estimator, name, ""))) for name, words in _FACTS.items()]
    return facts_html(f"What {type(estimator).__name__} has learned", facts)


def _features(estimator: Any) -> str:
    made = getattr(estimator, "_n_features_out", None)
    return f"{estimator.n_features_in_} columns" + (f" to {made} unit features" if made else "")


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
