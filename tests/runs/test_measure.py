"""Every figure of an evaluation against a slow and plain way to get it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from recording import LargestStorage
from torch import Tensor, nn

from vmcr2.classifiers import NearestSubspace
from vmcr2.data import Split, plain
from vmcr2.functional import rate_reduction
from vmcr2.losses import MCR2Loss, VMCR2Loss
from vmcr2.models import build
from vmcr2.train import Config, _evaluate, fit, recipe
from vmcr2.train._artifacts import _strongest, confusion, evaluation_tensors
from vmcr2.train._evaluate import (
    TrainingSide,
    accuracy,
    effective_ranks,
    embed,
    evaluate_choices,
    evaluate_training,
    evaluate_unseen,
    mean_batch_delta,
    mean_cosines,
    nearest_class_mean,
    nearest_model,
    nearest_neighbours,
)
from vmcr2.train._folder import read_tensors, write_tensors

CPU = torch.device("cpu")


def features(count: int, dim: int, num_classes: int, *, noise: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Unit rows around class directions; small noise: easy, large noise: mistakes."""
    generator = torch.Generator().manual_seed(seed)
    centres = nn.functional.normalize(torch.randn(num_classes, dim, generator=torch.Generator().manual_seed(77)), dim=1)
    labels = torch.randint(num_classes, (count,), generator=generator)
    z = centres[labels] + noise * torch.randn(count, dim, generator=generator) / dim**0.5
    return nn.functional.normalize(z, dim=1), labels


def pictures(labels: Tensor, *shape: int, seed: int = 0) -> Split:
    generator = torch.Generator().manual_seed(seed)
    return Split(torch.randint(0, 256, (len(labels), *shape), generator=generator, dtype=torch.uint8), labels)


def side_of(z: Tensor, labels: Tensor, num_classes: int) -> TrainingSide:
    return TrainingSide(z, labels, NearestSubspace(num_classes).fit(z, labels), {})


# ---- embed


def test_embed_is_the_network_on_plain_pictures_in_evaluation_mode() -> None:
    split = pictures(torch.zeros(2100, dtype=torch.int64), 1, 8, 8)  # more than one block of 2000
    config = Config().replace(image_size=8, dim=16, mean=(0.3,), std=(0.5,), augmentation="crop")
    network = build("mlp", dim=16, input_shape=(1, 8, 8), hidden=(32,), batch_norm=True).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    z = embed(config, network, split.images, CPU)
    assert network.training
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())  # BatchNorm too
    assert not z.requires_grad
    with torch.no_grad():
        x = (plain(split.images, torch.arange(2100), size=8) - 0.3) / 0.5
        expected = network.eval()(x)
    assert torch.allclose(z, expected, atol=1e-6)
    embed(config, network, split.images, CPU)
    assert not network.training  # left as it was


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
    monkeypatch.setattr(_evaluate, "_COSINE_SAMPLE", 600)
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
    expected = []
    for point in unseen.double().numpy():
        near = np.argsort(-(z.double().numpy() @ point))[:5]
        votes = np.bincount(labels.numpy()[near], minlength=5)
        expected.append(int(np.flatnonzero(votes == votes.max())[0]))  # ties go to the lower class
    found = nearest_neighbours(side_of(z, labels, 5), unseen, 5)
    assert found.tolist() == expected


def test_neighbours_of_a_set_of_fewer_than_five() -> None:
    side = side_of(torch.eye(3), torch.tensor([2, 1, 1]), 3)
    assert nearest_neighbours(side, torch.eye(3), 3).tolist() == [1, 1, 1]
    assert nearest_neighbours(side, torch.eye(3), 3, count=1).tolist() == [2, 1, 1]


def test_the_three_accuracies_are_under_their_names() -> None:
    z, labels = features(300, 10, 5, noise=2.0)
    unseen, truth = features(200, 10, 5, noise=2.0, seed=1)
    side = side_of(z, labels, 5)
    found = evaluate_unseen(side, unseen, truth, 5)
    bases = side.classifier.bases.double()
    residual = torch.stack([(unseen.double() - unseen.double() @ v @ v.T).square().sum(1) for v in bases], 1)
    assert found == {
        "accuracy": (residual.argmin(1) == truth).double().mean().item(),
        "class_mean_accuracy": accuracy(nearest_class_mean(side, unseen, 5), truth),
        "neighbours_accuracy": accuracy(nearest_neighbours(side, unseen, 5), truth),
    }
    assert len(set(found.values())) == 3  # hard enough to tell them apart


@pytest.mark.parametrize(("dim", "counts"), [(4, [1, 2, 3]), (24, [1, 2, 3, 5, 8, 12, 20])])
def test_accuracies_by_components_are_those_of_the_leading_eigenvectors(dim: int, counts: list[int]) -> None:
    z, labels = features(400, dim, 5, noise=3.0)
    unseen, truth = features(300, dim, 5, noise=3.0, seed=1)
    found = evaluate_choices(side_of(z, labels, 5), unseen, truth, 5, MCR2Loss(5))
    expected = {}
    for count in counts:
        inside = []
        for j in range(5):
            members = z[labels == j].double().numpy()
            leading = np.linalg.eigh(members.T @ members)[1][:, -count:]
            inside.append(((unseen.double().numpy() @ leading) ** 2).sum(1))
        expected[str(count)] = float((np.stack(inside, 1).argmax(1) == truth.numpy()).mean())
    assert found == {"accuracy_by_components": pytest.approx(expected)}  # exact MCR² has no dictionary
    assert len(set(expected.values())) > 1


def test_a_run_classifies_by_as_many_components_as_it_is_told(tmp_path: Path) -> None:
    """The accuracy is the one that the table of choices has for them; the run keeps, and loads, that classifier."""
    config = recipe("digits", device="cpu", epochs=3, holdout=287, components=2, eval_every=2)
    run = fit(config, out=tmp_path / "run")
    assert run.classifier.bases.shape[2] == 2
    choices = run.summary["holdout_accuracy_by_components"]
    assert run.summary["holdout_accuracy"] == choices["2"]
    assert choices["2"] != choices["12"]
    again = fit(config, out=tmp_path / "run", resume=True)
    assert torch.equal(again.classifier.bases, run.classifier.bases)
    z, labels = features(40, 128, 10, noise=1.0)
    assert torch.equal(again.classifier.predict(z), run.classifier.predict(z))
    assert evaluate_training(config, z, labels, 10).classifier.bases.shape[2] == 2
    assert evaluate_training(config.replace(components=0), z, labels, 10).classifier.bases.shape[2] == 12


def model_with(dictionary: Tensor, codes: Tensor) -> VMCR2Loss:
    q, k = codes.shape
    loss = VMCR2Loss(k, len(dictionary), atoms_per_class=q // k)
    loss.dictionary.copy_(dictionary)
    loss.codes.copy_(codes)
    return loss


def test_the_dictionary_as_classifier_against_a_class_s_matrix_at_a_time() -> None:
    z, truth = features(300, 12, 4, noise=2.0)
    generator = torch.Generator().manual_seed(5)
    dictionary = nn.functional.normalize(torch.randn(12, 8, generator=generator), dim=0)
    codes = torch.rand(8, 4, generator=generator) * torch.tensor([8.0, 1.0, 0.2, 3.0])  # traces that must not count
    loss = model_with(dictionary, codes)
    scores = []
    for j in range(4):
        model = dictionary.double() @ torch.diag(codes[:, j].double()) @ dictionary.double().T
        model /= codes[:, j].double().sum()
        scores.append([float(x @ model @ x) for x in z.double()])
    expected = np.array(scores).argmax(0)
    assert nearest_model(loss, z).tolist() == expected.tolist()
    assert len(set(expected)) == 4
    share = float((expected == truth.numpy()).mean())
    found = evaluate_choices(side_of(z, truth, 4), z, truth, 4, loss)
    assert found["dictionary_accuracy"] == pytest.approx(share)


def test_the_dictionary_does_not_name_a_class_without_codes() -> None:
    codes = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert nearest_model(model_with(torch.eye(3), codes), torch.eye(3)[:2]).tolist() == [1, 2]


@pytest.mark.parametrize("objective", ["vmcr2", "ce"])
def test_what_is_to_choose_by_is_measured_on_a_hold_out_alone(objective: str, tmp_path: Path) -> None:
    config = recipe("digits", objective=objective, epochs=1, eval_every=0, hidden=(32,))
    held = fit(config.replace(holdout=200), out=tmp_path / "held").summary
    tested = fit(config, out=tmp_path / "tested").summary
    assert list(held["holdout_accuracy_by_components"]) == ["1", "2", "3", "5", "8", "12", "20"]
    assert ("holdout_dictionary_accuracy" in held) == (objective == "vmcr2")
    assert not [key for key in tested if "by_components" in key or "dictionary" in key]


def test_confusion_counts_rows_of_truth_and_columns_of_answers() -> None:
    table = confusion(torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([0, 1, 1, 0, 2, 2]), 4)
    assert table.tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 2, 0], [0, 0, 0, 0]]


# ---- evaluation.safetensors

NAMES = {
    "features",
    "labels",
    "unseen_features",
    "unseen_labels",
    "spectra",
    "effective_ranks",
    "confusion",
    "smallest_angles",
    "mean_angles",
    "nearest_pictures",
    "nearest_index",
    "worst_pictures",
    "worst_labels",
    "worst_predicted",
}


def evaluation(
    *, dim: int, num_classes: int, shape: tuple[int, ...], count: int, noise: float
) -> tuple[dict[str, Tensor], TrainingSide, Split, Split, Tensor]:
    z, labels = features(count, dim, num_classes, noise=noise)
    unseen, truth = features(count // 2, dim, num_classes, noise=noise, seed=1)
    side, train, test = side_of(z, labels, num_classes), pictures(labels, *shape), pictures(truth, *shape, seed=1)
    return evaluation_tensors(side, train, test, unseen, num_classes), side, train, test, unseen


def test_the_largest_evaluation_stays_under_16_mib(tmp_path: Path) -> None:
    """Tiny ImageNet: 200 classes, d = 500, pictures of 64×64×3; more samples per class than are kept."""
    found, *_ = evaluation(dim=500, num_classes=200, shape=(3, 64, 64), count=4000, noise=6.0)
    assert set(found) == NAMES
    write_tensors(tmp_path / "evaluation.safetensors", found)
    assert (tmp_path / "evaluation.safetensors").stat().st_size < 16 * 2**20
    assert all(
        torch.equal(value, found[name]) for name, value in read_tensors(tmp_path / "evaluation.safetensors").items()
    )
    assert found["nearest_pictures"].shape == (200, 8, 3, 32, 32)
    assert found["worst_pictures"].shape == (32, 3, 32, 32)
    assert found["spectra"].shape == (200, 30)
    assert int(found["confusion"].sum()) == 2000
    kept = torch.bincount(found["labels"], minlength=200)
    assert kept.max() == 15  # 1,500,000 floats over 200 × 500
    assert found["features"].shape == (int(kept.sum()), 500)


@pytest.mark.parametrize(("dim", "num_classes", "shape"), [(128, 10, (1, 28, 28)), (500, 100, (3, 32, 32))])
def test_other_sizes_stay_under_it_too(dim: int, num_classes: int, shape: tuple[int, ...], tmp_path: Path) -> None:
    labels = torch.arange(4000) % num_classes
    z = nn.functional.normalize(torch.randn(len(labels), dim), dim=1)
    split = pictures(labels, *shape)
    side = TrainingSide(z, labels, NearestSubspace(num_classes, num_components=1).fit(z, labels), {})
    write_tensors(tmp_path / "e.safetensors", evaluation_tensors(side, split, split, z, num_classes))
    assert (tmp_path / "e.safetensors").stat().st_size < 16 * 2**20


def test_angles_are_those_of_the_class_subspaces() -> None:
    found, side, *_ = evaluation(dim=16, num_classes=4, shape=(1, 8, 8), count=200, noise=2.0)
    bases = side.classifier.bases.double()
    for i in range(4):
        for j in range(4):
            angles = torch.linalg.svdvals(bases[i].T @ bases[j]).clamp(0, 1).arccos()
            assert found["smallest_angles"][i, j].item() == pytest.approx(angles.min().item(), abs=2e-3)
            assert found["mean_angles"][i, j].item() == pytest.approx(angles.mean().item(), abs=2e-3)
    assert (found["smallest_angles"].diagonal() < 2e-3).all()


def test_codes_are_kept_where_there_are_some_and_they_fit() -> None:
    z, labels = features(60, 12, 3, noise=0.5)
    side, split = side_of(z, labels, 3), pictures(labels, 1, 8, 8)
    codes = torch.rand(6, 3)
    assert torch.equal(evaluation_tensors(side, split, split, z, 3, codes)["codes"], codes.half())
    assert "codes" not in evaluation_tensors(side, split, split, z, 3)
    assert "codes" not in evaluation_tensors(side, split, split, z, 3, torch.zeros(400_000, 3))


def test_many_classes_leave_the_angles_out() -> None:
    z = nn.functional.normalize(torch.randn(600, 8), dim=1)
    labels = torch.arange(600) % 501
    side, split = side_of(z, labels, 501), pictures(labels, 1, 2, 2)
    assert "smallest_angles" not in evaluation_tensors(side, split, split, z, 501)


@pytest.mark.parametrize(("num_classes", "there"), [(700, True), (701, False)])
def test_many_classes_leave_the_confusion_out(num_classes: int, there: bool) -> None:
    z = nn.functional.normalize(torch.randn(800, 8), dim=1)
    labels = torch.arange(800) % num_classes
    side, split = side_of(z, labels, num_classes), pictures(labels, 1, 2, 2)
    assert ("confusion" in evaluation_tensors(side, split, split, z, num_classes)) == there


@pytest.mark.parametrize("num_classes", [500, 700, 2000])
def test_many_classes_stay_under_16_mib(num_classes: int, tmp_path: Path) -> None:
    labels = torch.arange(6000) % num_classes
    z = nn.functional.normalize(torch.randn(len(labels), 500), dim=1)
    split = pictures(labels, 3, 32, 32)
    side = TrainingSide(z, labels, NearestSubspace(num_classes, num_components=1).fit(z, labels), {})
    codes = torch.rand(1_000_000 // num_classes, num_classes)
    write_tensors(tmp_path / "e.safetensors", evaluation_tensors(side, split, split, z, num_classes, codes))
    assert (tmp_path / "e.safetensors").stat().st_size < 16 * 2**20


def test_the_strongest_samples_take_no_more_than_the_features() -> None:
    """Along their own class's directions: samples × classes × directions would be 24 times as much here."""
    labels = torch.arange(3000) % 300
    z = nn.functional.normalize(torch.randn(len(labels), 50), dim=1)
    side = TrainingSide(z, labels, NearestSubspace(300, num_components=4).fit(z, labels), {})
    with LargestStorage() as storage:
        _strongest(side, 300, 8)
    assert storage.largest <= z.numel()


def test_features_go_with_their_labels_in_half_precision() -> None:
    found, side, _, test, unseen = evaluation(dim=16, num_classes=4, shape=(1, 8, 8), count=200, noise=2.0)
    for name, z, y in (("", side.features, side.labels), ("unseen_", unseen, test.labels)):
        kept, labels = found[f"{name}features"], found[f"{name}labels"]
        assert kept.dtype == torch.float16
        order = y.argsort(stable=True)  # few enough that all are kept, class by class
        assert torch.equal(labels, y[order])
        assert torch.equal(kept, z[order].half())


def test_spectra_ranks_and_confusion_are_those_of_the_features() -> None:
    found, side, _, test, unseen = evaluation(dim=16, num_classes=4, shape=(1, 8, 8), count=200, noise=2.0)
    for j in range(4):
        members = side.features[side.labels == j].double()
        eigenvalues = torch.linalg.eigvalsh(members.T @ members / len(members)).flip(0)
        assert torch.allclose(found["spectra"][j].double(), eigenvalues, atol=1e-4)
        rank = eigenvalues.sum() ** 2 / eigenvalues.square().sum()
        assert found["effective_ranks"][j].item() == pytest.approx(rank.item(), rel=1e-4)
    predicted = side.classifier.predict(unseen)
    for i in range(4):
        for j in range(4):
            assert found["confusion"][i, j] == ((test.labels == i) & (predicted == j)).sum()
    assert 0 < found["confusion"].trace() < len(test.labels)


@pytest.mark.parametrize(("dim", "directions"), [(40, 10), (16, 4), (8, 2), (4, 1)])
def test_nearest_pictures_are_those_with_the_largest_projection(dim: int, directions: int) -> None:
    found, side, train, *_ = evaluation(dim=dim, num_classes=4, shape=(1, 8, 8), count=200, noise=2.0)
    assert side.classifier.bases.shape[2] == directions
    index = found["nearest_index"]
    assert index.shape == (4, 8)
    for j in range(4):
        assert (side.labels[index[j]] == j).all()
        members = (side.labels == j).nonzero().flatten().tolist()
        taken: dict[int, list[float]] = {}
        for i in range(8):  # a round over the directions, then the next strongest of each
            along = side.classifier.bases[j][:, i % directions]
            strength = {n: abs(float(side.features[n] @ along)) for n in members}
            strongest = sorted(strength.values(), reverse=True)[i // directions]
            assert strength[int(index[j, i])] == pytest.approx(strongest, abs=1e-6)
            taken.setdefault(i % directions, []).append(strength[int(index[j, i])])
        assert all(values == sorted(values, reverse=True) for values in taken.values())
    assert torch.equal(found["nearest_pictures"], train.images[index.flatten()].view(4, 8, 1, 8, 8))


def test_nearest_pictures_of_small_and_absent_classes() -> None:
    z = torch.eye(8)[[0, 1, 2, 0]]
    labels = torch.tensor([0, 0, 0, 2])
    split = pictures(labels, 1, 8, 8)
    found = evaluation_tensors(side_of(z, labels, 3), split, split, z, 3)
    assert found["nearest_index"][1].tolist() == [-1] * 8
    assert found["nearest_pictures"][1].sum() == 0
    assert found["nearest_index"][2].tolist() == [3] * 8
    assert found["nearest_index"][0].max() < 3
    assert found["nearest_index"][0].min() >= 0


def test_large_pictures_are_averaged_down() -> None:
    labels = torch.zeros(4, dtype=torch.int64)
    flat = torch.tensor([10, 90, 170, 250], dtype=torch.uint8).view(4, 1, 1, 1).expand(4, 3, 64, 64)
    split = Split(flat.contiguous(), labels)
    z = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])
    found = evaluation_tensors(side_of(z, labels, 1), split, split, z, 1)
    assert found["nearest_pictures"].shape == (1, 8, 3, 32, 32)
    expected = split.images[found["nearest_index"].flatten()][:, :, :32, :32]
    assert torch.equal(found["nearest_pictures"][0], expected)


@pytest.mark.parametrize("count", [60, 600])  # fewer mistakes than are shown, and more
def test_worst_pictures_are_mistakes_by_falling_gap(count: int) -> None:
    found, side, _, test, unseen = evaluation(dim=16, num_classes=4, shape=(1, 8, 8), count=count, noise=4.0)
    bases = side.classifier.bases.double()
    residual = torch.stack([(unseen.double() - unseen.double() @ v @ v.T).square().sum(1) for v in bases], 1)
    predicted = side.classifier.predict(unseen)
    mistakes = (predicted != test.labels).nonzero().flatten()
    gap = (residual.gather(1, test.labels[:, None]) - residual.gather(1, predicted[:, None])).squeeze(1)[mistakes]
    expected = mistakes[gap.argsort(descending=True)][:32]
    assert len(expected) == min(32, len(mistakes)) > 5
    assert (count == 600) == (len(mistakes) > 32)
    assert torch.equal(found["worst_pictures"], test.images[expected])
    assert torch.equal(found["worst_labels"], test.labels[expected])
    assert torch.equal(found["worst_predicted"], predicted[expected])
    assert (found["worst_labels"] != found["worst_predicted"]).all()


@pytest.mark.parametrize("truth", [1, 2])
def test_worst_pictures_agree_with_the_classifier_where_a_class_is_absent(truth: int) -> None:
    """Orthogonal to all, a point is given to a class that exists: by `predict`, so in the pictures' captions too."""
    z = torch.eye(6)[[0, 1, 2, 3]]
    labels = torch.tensor([1, 1, 2, 2])
    side = side_of(z, labels, 3)
    unseen, label = torch.eye(6)[[4]], torch.tensor([truth])
    predicted = int(side.classifier.predict(unseen))
    found = evaluation_tensors(side, pictures(labels, 1, 8, 8), pictures(label, 1, 8, 8), unseen, 3)
    assert found["confusion"].nonzero().tolist() == [[truth, predicted]]
    assert predicted != 0
    assert found["worst_predicted"].tolist() == ([] if predicted == truth else [predicted])


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 64, 64)])
def test_without_mistakes_the_worst_are_empty(shape: tuple[int, ...], tmp_path: Path) -> None:
    found, _, _, test, _ = evaluation(dim=32, num_classes=4, shape=shape, count=80, noise=0.1)
    assert int(found["confusion"].trace()) == len(test.labels)
    assert found["worst_pictures"].shape[0] == len(found["worst_labels"]) == len(found["worst_predicted"]) == 0
    assert found["worst_pictures"].dtype == torch.uint8
    write_tensors(tmp_path / "e.safetensors", found)
    assert set(read_tensors(tmp_path / "e.safetensors")) == NAMES
