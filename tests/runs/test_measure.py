"""Every figure of an evaluation against a slow and plain way to get it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from feature_clouds import features, side_of
from seeds import SEED
from torch import Tensor

from vmcr2.functional import rate_reduction
from vmcr2.objectives import OBJECTIVES, CESettings, MCR2Settings, Objective
from vmcr2.runs import Config, _measure, fit, load_run, recipe
from vmcr2.runs._measure import (
    accuracy,
    effective_ranks,
    evaluate_training,
    evaluate_unseen,
    mean_batch_delta,
    mean_cosines,
    nearest_class_mean,
    nearest_neighbours,
)


def without_head(num_classes: int, dim: int) -> Objective:
    return MCR2Settings().build(num_classes, dim, torch.arange(num_classes), 10)


# ---- cosines


def brute_cosines(z: Tensor, labels: Tensor) -> tuple[float, float]:
    z64, y = z.double().numpy(), labels.numpy()
    table = np.abs(z64 @ z64.T)
    same = y[:, None] == y[None, :]
    apart = ~np.eye(len(y), dtype=bool)
    within, between = table[same & apart], table[~same]
    return (within.mean() if within.size else 0.0), (between.mean() if between.size else 0.0)


@pytest.mark.parametrize("count", [2, 7, 999, 1000, 1001, 2001, 2350])
def test_cosines_leave_out_self_pairs_also_across_the_blocks(count: int) -> None:
    z, labels = features(count, 12, 4, noise=1.5)
    assert mean_cosines(z, labels) == pytest.approx(brute_cosines(z, labels), rel=1e-5)


def test_cosines_of_orthogonal_rows_are_zero_within_a_class() -> None:
    """With self-pairs it would be 1/n."""
    assert mean_cosines(torch.eye(6), torch.tensor([0, 0, 0, 1, 1, 1])) == (0.0, 0.0)


def test_cosines_take_no_sign() -> None:
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.6, 0.8]])
    assert mean_cosines(z, torch.tensor([0, 0, 1])) == pytest.approx((1.0, 0.6))


def test_cosines_where_a_kind_of_pair_is_absent() -> None:
    assert mean_cosines(torch.eye(3), torch.arange(3)) == (0.0, 0.0)
    assert mean_cosines(torch.ones(3, 1), torch.zeros(3, dtype=torch.int64)) == (pytest.approx(1.0), 0.0)


def test_cosines_of_many_are_those_of_a_fixed_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = features(900, 8, 3, noise=1.0)
    whole = mean_cosines(z, labels)
    monkeypatch.setattr(_measure, "_COSINE_SAMPLE", 600)
    torch.manual_seed(1)
    sampled = mean_cosines(z, labels)
    assert sampled == pytest.approx(whole, rel=0.05)
    assert sampled != whole
    torch.manual_seed(2)
    assert mean_cosines(z, labels) == sampled


# ---- effective rank


def with_spectrum(eigenvalues: list[float], dim: int, count: int) -> Tensor:
    """Rows whose second moment has these eigenvalues."""
    left = torch.linalg.qr(torch.randn(count, len(eigenvalues), dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(dim, len(eigenvalues), dtype=torch.float64)).Q
    return left @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64).sqrt()) @ right.T


@pytest.mark.parametrize("count", [9, 20, 40])  # fewer samples than dimensions, as many, more
@pytest.mark.parametrize("rank", [1, 3, 8])
def test_effective_rank_of_equal_eigenvalues_is_their_number(rank: int, count: int) -> None:
    z = with_spectrum([2.5] * rank, 20, count)
    assert effective_ranks(z, torch.zeros(count, dtype=torch.int64), 1).tolist() == pytest.approx([rank])


def test_effective_rank_of_a_known_spectrum_per_class() -> None:
    first, second = with_spectrum([4.0, 2.0, 1.0], 10, 15), with_spectrum([1.0, 1e-12], 10, 6)
    z = torch.cat([first, second])
    labels = torch.tensor([0] * 15 + [3] * 6)
    mixed = torch.randperm(21)
    found = effective_ranks(z[mixed], labels[mixed], 4).tolist()
    assert found == pytest.approx([49 / 21, 0.0, 0.0, 1.0])  # (Σλ)²/Σλ²; nothing for the absent


# ---- ΔR


def test_mean_batch_delta_is_the_mean_over_one_pass_of_whole_batches() -> None:
    z, labels = features(230, 8, 3, noise=1.0)
    config = Config().replace(batch_size=50, seed=4, eps_sq=0.3)
    found = mean_batch_delta(config, z, labels, 3)
    order = torch.randperm(230, generator=torch.Generator().manual_seed(4))
    direct = []
    for start in (0, 50, 100, 150):  # 30 are left over
        rows = order[start : start + 50]
        zb, yb = z[rows].double(), labels[rows]
        expansion = 0.5 * torch.logdet(torch.eye(8) + 8 / (50 * 0.3) * zb.T @ zb)
        compression = sum(
            float(
                (yb == j).sum()
                / 50
                * 0.5
                * torch.logdet(torch.eye(8) + 8 / (int((yb == j).sum()) * 0.3) * zb[yb == j].T @ zb[yb == j])
            )
            for j in range(3)
            if (yb == j).any()
        )
        direct.append(float(expansion) - compression)
    assert found == pytest.approx(sum(direct) / 4, rel=1e-4)
    assert mean_batch_delta(config.replace(seed=5), z, labels, 3) != found  # another shuffling


def test_mean_batch_delta_of_a_set_smaller_than_the_batch_is_that_of_the_set() -> None:
    z, labels = features(40, 8, 3, noise=1.0)
    whole = rate_reduction(z, labels, 3, eps_sq=0.5).delta.item()
    assert mean_batch_delta(Config().replace(batch_size=1000), z, labels, 3) == pytest.approx(whole, rel=1e-5)


def test_the_figures_of_the_training_side() -> None:
    """Classes on coordinate axes: everything is known in closed form."""
    z = torch.eye(8).repeat(5, 1)
    labels = (torch.arange(8) // 4).repeat(5)  # two classes on four axes each
    config = Config().replace(dim=8, batch_size=1000, eps_sq=0.5)
    side = evaluate_training(config, z, labels, 2)
    expansion = 8 / 2 * np.log(1 + 1 / 0.5)
    compression = 4 / 2 * np.log(1 + 8 / (4 * 0.5))
    figures = side.figures
    assert figures["expansion"] == pytest.approx(expansion)
    assert figures["compression"] == pytest.approx(compression)
    assert figures["train_delta_r"] == pytest.approx(expansion - compression)
    assert figures["batch_delta_r"] == pytest.approx(expansion - compression, rel=1e-5)
    assert figures["subspace_overlap"] == pytest.approx(0.0, abs=1e-6)
    assert figures["effective_rank"] == pytest.approx(4.0)
    assert figures["train_accuracy"] == 1.0
    # of the 19 others of its class a row meets 4 like itself
    assert figures["within_cosine"] == pytest.approx(4 / 19)
    assert figures["between_cosine"] == 0.0
    assert side.classifier.bases.shape == (2, 8, 4)


# ---- classifiers


def test_accuracy_is_a_share() -> None:
    assert accuracy(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 1, 2])) == 0.75


@pytest.mark.parametrize("noise", [0.5, 3.0])
def test_nearest_class_mean_against_brute_force(noise: float) -> None:
    z, labels = features(300, 10, 5, noise=noise)
    unseen, _ = features(211, 10, 5, noise=noise, seed=1)
    means = np.stack([z[labels == j].double().numpy().mean(0) for j in range(5)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    expected = [int(np.argmin(((point - means) ** 2).sum(1))) for point in unseen.double().numpy()]
    assert nearest_class_mean(side_of(z, labels, 5), unseen, 5).tolist() == expected


def test_nearest_class_mean_never_names_a_class_without_samples() -> None:
    """Opposite to both means, a point is still nearer to one of them than to nothing."""
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    side = side_of(z, torch.tensor([0, 2]), 3)
    assert nearest_class_mean(side, torch.tensor([[-0.6, -0.8], [-0.8, -0.6]]), 3).tolist() == [0, 2]


@pytest.mark.parametrize("noise", [0.5, 3.0])
def test_neighbours_against_brute_force(noise: float) -> None:
    z, labels = features(300, 10, 5, noise=noise)
    unseen, _ = features(1203, 10, 5, noise=noise, seed=1)  # over more than one block of 500
    expected, clear = [], []
    for point in unseen.double().numpy():
        cosines = z.double().numpy() @ point
        near = np.argsort(-cosines)
        votes = np.bincount(labels.numpy()[near[:5]], minlength=5)
        expected.append(int(np.flatnonzero(votes == votes.max())[0]))  # ties go to the lower class
        clear.append(cosines[near[4]] - cosines[near[5]] > 1e-5)  # else rounding decides who is fifth
    found = nearest_neighbours(side_of(z, labels, 5), unseen, 5)
    sure = torch.tensor(clear)
    assert sure.double().mean() > 0.99
    assert torch.equal(found[sure], torch.tensor(expected)[sure])


def test_neighbours_of_a_set_of_fewer_than_five() -> None:
    side = side_of(torch.eye(3), torch.tensor([2, 1, 1]), 3)
    assert nearest_neighbours(side, torch.eye(3), 3).tolist() == [1, 1, 1]
    assert nearest_neighbours(side, torch.eye(3), 3, count=1).tolist() == [2, 1, 1]


def test_the_three_accuracies_are_under_their_names() -> None:
    z, labels = features(300, 10, 5, noise=2.0)
    unseen, truth = features(200, 10, 5, noise=2.0, seed=1)
    side = side_of(z, labels, 5)
    found = evaluate_unseen(side, unseen, truth, 5, without_head(5, 10), "test")
    bases = side.classifier.bases.double()
    residual = torch.stack([(unseen.double() - unseen.double() @ v @ v.T).square().sum(1) for v in bases], 1)
    assert found == {
        "test_accuracy": pytest.approx((residual.argmin(1) == truth).double().mean().item(), abs=1.5 / 200),
        "test_class_mean_accuracy": accuracy(nearest_class_mean(side, unseen, 5), truth),
        "test_neighbours_accuracy": accuracy(nearest_neighbours(side, unseen, 5), truth),
    }
    assert len(set(found.values())) == 3  # hard enough to tell them apart


def test_a_head_s_accuracy_is_under_its_name() -> None:
    z, labels = features(300, 10, 5, noise=2.0)
    side = side_of(z, labels, 5)
    objective = CESettings().build(5, 10, labels, 10)
    found = evaluate_unseen(side, z, labels, 5, objective, "test")
    assert objective.head is not None
    with torch.no_grad():
        by_hand = (z.double() @ objective.head.weight.double().T + objective.head.bias.double()).argmax(1)
    assert found["head_accuracy"] == pytest.approx(accuracy(by_hand, labels), abs=1.5 / 300)


@pytest.mark.parametrize(("dim", "counts"), [(4, [1, 2, 3]), (24, [1, 2, 3, 5, 8, 12, 20])])
def test_accuracies_by_components_are_those_of_the_leading_eigenvectors(dim: int, counts: list[int]) -> None:
    z, labels = features(400, dim, 5, noise=3.0)
    unseen, truth = features(300, dim, 5, noise=3.0, seed=1)
    found = evaluate_unseen(side_of(z, labels, 5), unseen, truth, 5, without_head(5, dim), "holdout")
    expected = {}
    for count in counts:
        inside = []
        for j in range(5):
            members = z[labels == j].double().numpy()
            leading = np.linalg.eigh(members.T @ members)[1][:, -count:]
            inside.append(((unseen.double().numpy() @ leading) ** 2).sum(1))
        expected[str(count)] = float((np.stack(inside, 1).argmax(1) == truth.numpy()).mean())
    assert found["holdout_accuracy_by_components"] == pytest.approx(expected, abs=1.5 / 300)
    assert len(set(expected.values())) > 1


# ---- in a run

SMALL: dict[str, Any] = {"device": "cpu", "epochs": 3, "hidden": (32,), "eval_every": 0, "seed": SEED}


def test_a_run_classifies_by_as_many_components_as_it_is_told(tmp_path: Path) -> None:
    """The accuracy is the one that the table of choices has for them; the run keeps, and loads, that classifier."""
    config = recipe("digits", holdout=287, components=2, **SMALL)
    run = fit(config, out=tmp_path / "run")
    assert run.classifier.bases.shape[2] == 2
    assert run.summary["holdout_accuracy"] == run.summary["holdout_accuracy_by_components"]["2"]
    again = load_run(tmp_path / "run", device="cpu")
    assert torch.equal(again.classifier.bases, run.classifier.bases)
    z, labels = features(40, 128, 10, noise=1.0)
    assert torch.equal(again.classifier.predict(z), run.classifier.predict(z))
    assert evaluate_training(config, z, labels, 10).classifier.bases.shape[2] == 2
    assert evaluate_training(config.replace(components=0), z, labels, 10).classifier.bases.shape[2] == 12


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_what_is_to_choose_by_is_measured_on_a_hold_out_alone(objective: str, tmp_path: Path) -> None:
    config = recipe("digits", objective=objective, **SMALL)
    held = fit(config.replace(holdout=200), out=tmp_path / "held").summary
    tested = fit(config, out=tmp_path / "tested").summary
    assert list(held["holdout_accuracy_by_components"]) == ["1", "2", "3", "5", "8", "12", "20"]
    assert not [key for key in tested if "by_components" in key]
    assert held["calibration_samples"] == 200
    alone = {"calibration_error"}  # probabilities were fitted to the hold-out: there is nothing to measure on it
    assert {key.replace("holdout_", "test_") for key in held} - {"test_accuracy_by_components"} == set(tested) - alone
    assert ("head_accuracy" in tested) == objective.startswith("ce")
