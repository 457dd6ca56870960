"""What the estimators decide by themselves: the objective, the read-out, how far class sizes enter, and warnings."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from seeds import SEED
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine, make_classification
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import train_test_split

from vmcr2.inference import fit_calibration
from vmcr2.objectives import choose_objective
from vmcr2.sklearn import RateReductionClassifier, RateReductionEmbedding
from vmcr2.sklearn._training import portable
from vmcr2.training import NoisyRows

QUICK = {"epochs": 20, "hidden": (32,), "dim": 24, "random_state": 0}


@pytest.fixture(scope="module")
def wine() -> Any:
    return load_wine(return_X_y=True)


@pytest.mark.parametrize("kind", [RateReductionClassifier, RateReductionEmbedding])
def test_the_objective_follows_from_the_classes_in_a_batch(kind: Any, wine: Any) -> None:
    X, y = load_digits(return_X_y=True)
    many = kind(epochs=1, random_state=0).fit(X, y)
    few = kind(epochs=1, random_state=0).fit(X[:60], y[:60])
    assert (many.objective_, few.objective_) == ("ce+mcr2", "ce+vmcr2")
    assert few.objective_ == choose_objective(np.bincount(y[:60]).tolist(), 500, 128), "the trainer's rule"
    assert kind(objective="mcr2", epochs=1).fit(*wine).objective_ == "mcr2"


def test_the_objective_stays_when_batches_come_after_fit(wine: Any) -> None:
    X, y = wine
    model = RateReductionClassifier(**QUICK).fit(X, y)
    assert model.objective_ == "ce+mcr2"
    assert model.partial_fit(X[::30], y[::30]).objective_ == "ce+mcr2"


def test_read_outs(wine: Any) -> None:
    X, y = wine
    chosen = RateReductionClassifier(**QUICK).fit(X, y)
    head = clone(chosen).set_params(readout="head").fit(X, y)
    subspace = clone(chosen).set_params(readout="subspace").fit(X, y)
    assert (head.readout_, subspace.readout_) == ("head", "subspace")
    z = torch.as_tensor(head.transform(X))
    assert np.array_equal(head.predict(X), head.classes_[head.head_(z).argmax(1).numpy()])
    assert np.array_equal(subspace.predict(X), (-subspace.residuals(X) + subspace.class_log_shift_).argmax(1))
    by = {"head": head, "subspace": subspace}
    assert np.array_equal(chosen.predict_proba(X), by[chosen.readout_].predict_proba(X)), "the same network"
    assert np.allclose(head.novelty_score(X), head.residuals(X).min(axis=1)), "it has subspaces too"
    assert RateReductionClassifier("mcr2", **QUICK).fit(X, y).readout_ == "subspace"
    assert RateReductionClassifier("ce", **QUICK).fit(X, y).readout_ == "head"


def test_the_read_out_is_the_one_that_makes_the_hold_out_likelier(wine: Any) -> None:
    X, y = wine
    model = RateReductionClassifier(**QUICK).fit(X, y)
    for worse in ("head", "subspace"):

        def scores(readout: str, z: Any, worse: str = worse) -> np.ndarray:
            good = np.eye(3)[y[: len(z)]]
            return good if readout != worse else np.ones_like(good)

        model._scores_by = scores
        model._choose_readout(X[:40], y[:40], seen=False)
        assert model.readout_ != worse
        model._choose_readout(X[:40], y[:40], seen=True)
        assert model.readout_ == "head", "samples that were trained on cannot tell"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"readout": "best"}, "readout must be one of auto, head, subspace, got 'best'"),
        (
            {"readout": "head", "objective": "vmcr2"},
            "readout='head' needs an objective with cross-entropy, got 'vmcr2'",
        ),
        ({"rate_weight": -1}, "rate_weight must be a number of at least 0, got -1"),
        ({"input_noise": "a"}, "input_noise must be a number of at least 0, got 'a'"),
    ],
)
def test_arguments(arguments: dict[str, Any], message: str, wine: Any) -> None:
    with pytest.raises(ValueError, match=message):
        RateReductionClassifier(**arguments).fit(*wine)


def drawn_labels(scores: np.ndarray, temperature: float, shift: np.ndarray, rng: Any) -> np.ndarray:
    p = softmax(scores / temperature + shift, axis=1)
    return (rng.uniform(size=(len(p), 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=p.shape[1] - 1)


def test_class_sizes_enter_as_far_as_the_hold_out_asks() -> None:
    rng = np.random.RandomState(SEED)
    log_prior = np.log([0.9, 0.1])
    scores = rng.randn(4000, 2)
    without = fit_calibration(scores, drawn_labels(scores, 1.0, log_prior, rng), log_prior=log_prior)
    assert without.prior_share >= 0.75
    assert 0.7 < without.temperature < 1.4
    inside = scores + log_prior
    assert fit_calibration(inside, drawn_labels(inside, 1.0, 0 * log_prior, rng), log_prior=log_prior).prior_share == 0
    assert fit_calibration(scores[:3], np.array([0, 0, 1]), log_prior=log_prior).prior_share == 0, "three say nothing"


def test_temperatures_of_tiny_residuals() -> None:
    """Residuals of few dimensions in many differ by 1e-5 and less."""
    rng = np.random.RandomState(SEED)
    scores = 1e-5 * rng.randn(4000, 2)
    found = fit_calibration(scores, drawn_labels(scores, 1e-5, np.zeros(2), rng))
    assert 0.7e-5 < found.temperature < 1.4e-5


def unbalanced(seed: int) -> list[np.ndarray]:
    X, y = make_classification(900, 8, n_informative=5, weights=[0.96], flip_y=0.0, random_state=seed)
    return train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)  # type: ignore[no-any-return]


@pytest.mark.parametrize("objective", ["auto", "mcr2", "vmcr2"])
def test_a_rare_class_is_not_predicted_too_often(objective: str) -> None:
    ours, share = [], []
    for seed in range(SEED, SEED + 3):
        X, test, y, truth = unbalanced(seed)
        ours.append(RateReductionClassifier(objective, epochs=40, random_state=seed).fit(X, y).score(test, truth))
        share.append(np.mean(truth == 0))
    assert np.mean(ours) > np.mean(share) - 0.02


def test_balanced_weights_find_more_of_a_rare_class() -> None:
    plain, weighted = [], []
    for seed in range(SEED, SEED + 3):
        X, test, y, truth = unbalanced(seed)
        model = RateReductionClassifier(epochs=40, random_state=seed)
        plain.append(balanced_accuracy_score(truth, model.fit(X, y).predict(test)))
        model.set_params(class_weight="balanced")
        weighted.append(balanced_accuracy_score(truth, model.fit(X, y).predict(test)))
    assert np.mean(weighted) > np.mean(plain) - 0.01


def test_a_class_of_one_sample_is_a_line() -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:200], y[:200].copy()
    alone = int(np.flatnonzero(y == 9)[0])
    y[y == 9] = 8
    y[alone] = 9
    with pytest.warns(UserWarning, match="these classes have one sample, so their subspaces are lines: 9"):
        model = RateReductionClassifier("mcr2", epochs=30, hidden=(64,), random_state=0).fit(X, y)
    ranks = (model.classifier_.bases != 0).any(1).sum(1)
    assert ranks[9] == 1
    assert model.residuals(X[[alone]])[0, 9] < 1e-6
    assert model.predict(X[[alone]]).tolist() == [9]


def test_features_of_the_classifier(wine: Any) -> None:
    X, y = wine
    model = RateReductionClassifier(**QUICK)
    z = model.fit_transform(X, y)
    assert z.shape == (len(X), 24)
    assert np.allclose(np.linalg.norm(z, axis=1), 1)
    assert np.array_equal(z, model.transform(X))
    assert model.get_feature_names_out()[-1] == "ratereductionclassifier23"
    assert list(model.set_output(transform="pandas").transform(X).columns) == list(model.get_feature_names_out())
    nearest = model.classifier_.residuals(torch.as_tensor(z))
    assert np.allclose(nearest, model.residuals(X))


def test_the_device_is_chosen(wine: Any) -> None:
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert RateReductionClassifier(**QUICK).fit(*wine).featurizer_.mean.device.type == expected


def test_features_that_learned_nothing_are_said() -> None:
    rng = np.random.RandomState(SEED)
    X, y = rng.randn(400, 4), np.arange(400) % 2
    with pytest.warns(UserWarning, match=r"the features are (stalled|collapsed): .* Try a smaller lr"):
        RateReductionEmbedding(objective="mcr2", epochs=1, hidden=(16,), lr=1e-6, random_state=0).fit(X, y)


@pytest.mark.parametrize("objective", ["auto", "mcr2", "vmcr2", "ce"])
def test_features_that_learned_something_are_not(objective: str, wine: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RateReductionClassifier(objective, random_state=0).fit(*wine)


def test_noise_is_in_training_alone() -> None:
    x = torch.zeros(2000, 3)
    rows = NoisyRows(x, torch.zeros(2000), spread=torch.tensor([0.0, 0.5, 2.0]))
    index = torch.arange(2000)
    torch.manual_seed(SEED)
    seen = rows.training_batch(index, torch.tensor(0))
    assert torch.allclose(seen.std(0), rows.spread, rtol=0.1)
    assert torch.equal(rows.plain_batch(index), x)


def test_sample_weights_beside_a_rate() -> None:
    rng = np.random.RandomState(SEED)
    X = rng.randn(300, 4)
    y = (X[:, 0] > 0).astype(int)
    wrong = np.where(np.arange(300) < 120, 1 - y, y)
    model = RateReductionClassifier("ce+mcr2", epochs=40, readout="head", random_state=0, validation_fraction=0)
    plain = model.fit(X, wrong).score(X, y)
    weights = np.where(np.arange(300) < 120, 1e-6, 1.0)
    assert model.fit(X, wrong, sample_weight=weights).score(X, y) > plain


def test_the_first_rows_of_a_stream_do_not_decide(wine: Any) -> None:
    X, y = wine
    few, many = np.r_[0:3, 60:63, 140:143], np.arange(len(y))
    made = [
        RateReductionClassifier(random_state=0).partial_fit(X[rows], y[rows], classes=[0, 1, 2]) for rows in (few, many)
    ]
    assert {model.objective_ for model in made} == {"ce+mcr2"}
    assert len({model._trainer.plan.objective.rate_weight for model in made}) == 1


def test_a_model_of_a_gpu_is_pickled_for_the_cpu(wine: Any) -> None:
    """No GPU is here: the device is only said to be one, and what would be sent shows where it goes."""
    model = RateReductionClassifier(epochs=2, random_state=0).fit(*wine)
    trainer = model._fitted_trainer
    assert portable(trainer) is trainer
    trainer.plan = replace(trainer.plan, device=torch.device("cuda"))
    moved = portable(trainer)
    assert (moved.plan.device.type, moved.numerics.device.type, moved.optimizer) == ("cpu", "cpu", None)
    assert moved.featurizer is not trainer.featurizer
    again = pickle.loads(pickle.dumps(model))
    assert again._fitted_trainer.plan.device.type == "cpu"
    assert np.array_equal(again.predict_proba(wine[0]), model.predict_proba(wine[0]))
    again.partial_fit(*wine)
