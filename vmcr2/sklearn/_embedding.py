"""The features without a classifier, as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..inference import Array
from ..objectives import INPUT_NOISE
from ._arguments import keep_arguments
from ._base import RateReductionBase
from ._health import warn_of_bad_features
from ._labels import encode, need_two_classes, warn_of_single_samples
from ._undo import undone_on_failure


class RateReductionEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, RateReductionBase):  # type: ignore[misc]
    """Learns from labelled rows to turn rows into unit features on orthogonal class subspaces: for search and plots.

    All samples train; nothing is held out. Arguments are those of :class:`RateReductionClassifier`, but
    ``n_components`` is here the number of features of the output (there ``dim``): by default 13 per class up to 128, at
    least 5 per class, at most 512 (or one per class, if more).

    Attributes: ``classes_``, ``n_features_in_``, ``feature_names_in_``, ``objective_`` (what "auto" has chosen),
    ``network_``, ``loss_curve_``, ``n_iter_``.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> RateReductionEmbedding(16, epochs=5, random_state=0).fit_transform(X, y).shape
    (150, 16)
    """

    _dim_argument = "n_components"

    def __init__(
        self,
        n_components: int | None = None,
        *,
        objective: str = "auto",
        hidden: tuple[int, ...] = (256, 256),
        network: Any = None,
        epochs: int | None = None,
        batch_size: int = 500,
        lr: float | None = None,
        weight_decay: float | None = None,
        eps_sq: float = 0.5,
        weight: float = 20.0,
        batch_expansion: float = 0.3,
        rate_weight: float | None = None,
        atoms_per_class: int | None = None,
        standardize: bool = True,
        input_noise: float = INPUT_NOISE,
        random_state: Any = None,
        verbose: int = 0,
        device: str = "auto",
    ) -> None:
        keep_arguments(self, locals())

    @undone_on_failure()
    def fit(self, X: Any, y: Any) -> RateReductionEmbedding:
        """Train the network on rows and their labels."""
        X, y = validate_data(self, X, y, dtype=np.float64, order="C")
        classes, labels = encode(y)
        need_two_classes(type(self).__name__, classes)
        warn_of_single_samples(classes, labels)
        plan = self._plan(np.bincount(labels), self._seed())
        trainer = self._new_trainer(X, plan, torch.as_tensor(labels))
        self._run(trainer, self._samples(trainer, X, labels))
        self.classes_ = classes
        self._keep(trainer)
        self._n_features_out = plan.dim
        warn_of_bad_features(self._features(X), labels, plan)
        return self

    def transform(self, X: Any) -> Array:
        """Unit features, (n, n_components)."""
        check_is_fitted(self)
        return self._features(self._validated(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
