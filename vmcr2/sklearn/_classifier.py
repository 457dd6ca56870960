"""A network trained by rate reduction, and the nearest subspace on its features."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..classifiers import NearestSubspace
from ..data import stratified
from ..inference import HEAD, SUBSPACE, Array
from ..objectives import INPUT_NOISE
from ._arguments import check_components, keep_arguments, number, one_of, whole
from ._base import AUTO, weighs_samples
from ._health import warn_of_bad_features
from ._labels import encode, log_weights, need_two_classes, warn_of_single_samples
from ._partial import PartialFit
from ._readout import READOUTS, head_of
from ._scores import SubspaceScores, relative_residuals
from ._training import EarlyStopping, Plan, Samples, Trainer
from ._undo import undone_on_failure


class RateReductionClassifier(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SubspaceScores, PartialFit):  # type: ignore[misc]
    """Learns features on mutually orthogonal class subspaces, and predicts by them or by a linear head on them.

    Args:
        objective: "auto" (the default) composes cross-entropy with a rate reduction, the exact one where a batch holds
            enough samples of a class on average, else the variational one: "ce+mcr2" or "ce+vmcr2". Or "mcr2" (exact
            alone), "vmcr2" (variational alone), "ce" (cross-entropy alone, for comparison).
        readout: "head" (the linear layer of cross-entropy), "subspace" (the nearest subspace), or "auto": of a composed
            objective the one that makes the hold-out likelier.
        n_components: dimensions of every class's subspace; ⌊dim/k⌋ by default.
        dim: the number of features d; by default 13 per class up to 128, at least 5 per class, at most 512
            (or one per class, if more).
        hidden: widths of the default network's layers (Linear, BatchNorm, ReLU).
        network: another network: a ``torch.nn.Module`` (copied, not changed) or a function (in_features, dim) -> one.
        epochs: passes over the data; by default about 300 steps, at most 100 epochs, at least 30.
        batch_size: the largest batch. An epoch has even batches of at most this size; a rest that cannot be
            divided evenly is left out. BatchNorm needs two samples, so 1 means 2.
        lr: learning rate at the start; with every step it falls along a cosine, to 0. By default 0.03 (mcr2) or
            0.3.
        weight_decay: by default 2e-3 (vmcr2) or 5e-4.
        eps_sq: ε² of the coding rates.
        weight: how strictly V-MCR²'s dictionary must fit, see :class:`vmcr2.VMCR2Loss`.
        batch_expansion: β of V-MCR².
        rate_weight: λ of the composed objectives, the weight of the rate reduction beside the mean
            cross-entropy; by default 10/dim, and less below 50 samples per class.
        atoms_per_class: of V-MCR²'s dictionary; by default 2·dim/k, between 2 and 12.
        early_stopping: stop when the accuracy on the hold-out has not risen for ``n_iter_no_change`` epochs, and
            restore the best state.
        validation_fraction: the part of the samples that is held out, each class by its share, for the temperature,
            ``reject`` and early stopping. With 0, or where that would be fewer than one sample for each class, they use
            the training samples, on which the classifier is too confident.
        n_iter_no_change: patience of early stopping, in epochs.
        standardize: bring every column to mean 0 and variance 1. False is better for pixels and other columns of one
            kind, given on a scale of about 1.
        input_noise: the standard deviation of Gaussian noise that is added to the rows of every batch, in standard
            deviations of their columns; 0 for none. Without it the network learns small tables by heart.
        class_weight: None, "balanced" or a dict: rate reductions draw samples by it, and subspaces shift the decision
            by T·log w_j; cross-entropy alone weighs its terms.
        random_state: an integer, which is the seed itself, or a ``RandomState``. Torch's own random numbers stay.
        verbose: 1 shows a progress bar.
        device: where to train: "cpu", "cuda", or "auto" for a GPU if there is one.

    ``fit`` takes ``sample_weight`` where there is cross-entropy, whose terms it weighs. A coding rate belongs to a set
    of points and has no term per sample: the rate of a composed objective counts every sample once.

    Class sizes enter the decision. A head learns them. The scores of subspaces get β·log of the classes' shares, with
    the β that suits the hold-out.

    Attributes: ``classes_``, ``n_features_in_``, ``feature_names_in_``, ``objective_`` and ``readout_`` (what "auto"
    has chosen), ``network_``, ``classifier_`` (a :class:`vmcr2.NearestSubspace`), ``head_`` (cross-entropy's linear
    layer, else None), ``temperature_``, ``prior_share_`` (β), ``loss_curve_`` (about 20 values over the run),
    ``validation_scores_`` (with early stopping), ``n_iter_``, ``holdout_novelty_``.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RateReductionClassifier(epochs=30, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    validation_scores_: list[float]

    def __init__(
        self,
        objective: str = "auto",
        *,
        readout: str = "auto",
        n_components: int | None = None,
        dim: int | None = None,
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
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 30,
        standardize: bool = True,
        input_noise: float = INPUT_NOISE,
        class_weight: Any = None,
        random_state: Any = None,
        verbose: int = 0,
        device: str = "auto",
    ) -> None:
        keep_arguments(self, locals())

    @undone_on_failure()
    def fit(self, X: Any, y: Any, **fit_params: Any) -> RateReductionClassifier:
        """Train a new network and learn the subspaces of its features.

        The only further argument is ``sample_weight``, for objectives with cross-entropy.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, order="C")
        classes, labels = encode(y)
        need_two_classes(type(self).__name__, classes)
        warn_of_single_samples(classes, labels)
        plan = self._checked_plan(np.bincount(labels))
        weights = sample_weights(X, fit_params, plan.objective.name)
        logs = log_weights(self.class_weight, classes, y)
        held = held_out(labels, self.validation_fraction, plan)
        kept = ~held if held.any() else np.ones_like(held)
        trainer = self._new_trainer(X[kept], plan, torch.as_tensor(labels[kept]))
        if np.ptp(logs) > 0:  # drawn by class weights, any class may fill a batch
            trainer.objective.make_room(plan.optim.batch_size)
        data = self._samples(trainer, X[kept], labels[kept], logs, weights[kept])
        aside = held if held.any() else kept
        stop = self._early_stopping(trainer, data, X[aside], labels[aside]) if self.early_stopping else None
        self._run(trainer, data, stop)
        if hasattr(self, "validation_scores_"):
            del self.validation_scores_
        if stop is not None:
            stop.go_back()
            self.validation_scores_ = stop.scores
        self.classes_ = classes
        self._trainer, self._fitted_trainer = None, trainer
        self._class_logs = logs
        self._keep(trainer)
        self._learn_readouts(trainer, X[kept], labels[kept])
        self._choose_readout(X[aside], labels[aside], seen=not held.any())
        warn_of_bad_features(self._features(X[kept]), labels[kept], plan)
        return self

    def transform(self, X: Any) -> Array:
        """Unit features, (n, dim), by which the classes are told apart."""
        check_is_fitted(self)
        return self._features(self._validated(X))

    def novelty_score(self, X: Any) -> Array:
        """How far every point is from the known classes, (n,), in [0, 1].

        The share of ‖z‖² outside the nearest subspace. Cross-entropy alone: 1 − the largest softmax.
        """
        check_is_fitted(self)
        return self._novelty(self._validated(X))

    def _residuals(self, X: Any) -> Array:
        return relative_residuals(self.classifier_, self._features(self._validated(X)))

    def _raw_scores(self, X: Any) -> Array:
        return self._scores_by(self.readout_, self._features(self._validated(X)))

    def _checked_plan(self, sizes: Array, chosen: str | None = None) -> Plan:
        plan = self._plan(sizes, self._seed(), chosen)
        one_of("readout", self.readout, (AUTO, *READOUTS))
        if self.readout == HEAD and not weighs_samples(plan.objective.name):
            raise ValueError(f"readout='head' needs an objective with cross-entropy, got {plan.objective.name!r}")
        check_components(self.n_components, plan.dim, "the number of dimensions (dim)")
        whole("n_iter_no_change", self.n_iter_no_change)
        if number("validation_fraction", self.validation_fraction, zero=True) >= 1:
            raise ValueError(f"validation_fraction must be below 1, got {self.validation_fraction!r}")
        return plan

    def _early_stopping(self, trainer: Trainer, data: Samples, X: Array, labels: Array) -> EarlyStopping:
        aside = self._samples(trainer, X, labels)
        by_head = self.readout != SUBSPACE
        return EarlyStopping(trainer, data, aside, self.n_components, self.n_iter_no_change, by_head=by_head)

    def _learn_readouts(self, trainer: Trainer, X: Array, labels: Array) -> None:
        """The head, the subspaces of the features, and the classes' sizes."""
        self.head_ = head_of(trainer)
        subspaces = NearestSubspace(len(self.classes_), self.n_components)
        self.classifier_ = subspaces.fit(torch.as_tensor(self._features(X)), torch.as_tensor(labels))
        self._n_features_out = trainer.plan.dim
        self._class_sizes = np.bincount(labels, minlength=len(self.classes_)).astype(float)


def held_out(labels: Array, fraction: float, plan: Plan) -> Array:
    """Which rows are held out: the fraction, each class by its share. At least two samples of a class stay.

    Fewer than one for each class would say nothing: then none are held out.
    """
    count = round(fraction * len(labels))
    if count < plan.num_classes:
        return np.zeros(len(labels), dtype=bool)
    return np.asarray(stratified(torch.as_tensor(labels), count, plan.num_classes, seed=plan.seed, keep=2).numpy())


def sample_weights(X: Array, fit_params: dict[str, Any], objective: str) -> Array:
    """``sample_weight`` of fit, or ones. An objective without cross-entropy has no term for it to weigh."""
    unknown = sorted(set(fit_params) - {"sample_weight"})
    if unknown:
        raise TypeError(f"fit() got an unexpected argument {unknown[0]!r}")
    given = fit_params.get("sample_weight")
    if given is not None and not weighs_samples(objective):
        raise ValueError(
            f"sample_weight is not defined for objective={objective!r}: a coding rate belongs to a set of points and "
            "has no term per sample; use class_weight, an objective with cross-entropy or NearestSubspaceClassifier"
        )
    return np.asarray(_check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True))
