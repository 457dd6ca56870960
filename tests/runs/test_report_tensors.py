"""evaluation.safetensors: everything in it against a slow and plain way to get it, and under 16 MiB."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from feature_clouds import features, pictures, side_of
from recording import LargestStorage
from torch import Tensor, nn

from vmcr2.classifiers import NearestSubspace
from vmcr2.data import Split
from vmcr2.runs import read_tensors
from vmcr2.runs._measure import TrainingSide
from vmcr2.runs._report_tensors import _strongest, answered, confusion, evaluation_tensors
from vmcr2.runs._tensor_files import write_tensors


def test_confusion_counts_rows_of_truth_and_columns_of_answers() -> None:
    table = confusion(torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([0, 1, 1, 0, 2, 2]), 4)
    assert table.tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 2, 0], [0, 0, 0, 0]]


NAMES = {
    "num_classes",
    "shown_classes",
    "train_sizes",
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
    return evaluation_tensors(side, train, test, unseen, num_classes, {}), side, train, test, unseen


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
    write_tensors(tmp_path / "e.safetensors", evaluation_tensors(side, split, split, z, num_classes, {}))
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
    assert torch.equal(evaluation_tensors(side, split, split, z, 3, {"codes": codes})["codes"], codes.half())
    assert "codes" not in evaluation_tensors(side, split, split, z, 3, {})
    assert "codes" not in evaluation_tensors(side, split, split, z, 3, {"codes": torch.zeros(400_000, 3)})


def test_of_many_classes_some_are_shown_under_their_own_numbers() -> None:
    """What is kept of the 200 shown classes of 501 is what a file of few classes would have of them."""
    labels = torch.arange(2004) % 501
    z = nn.functional.normalize(torch.randn(2004, 16), dim=1)
    side, train = side_of(z, labels, 501), pictures(labels, 1, 8, 8)
    found = evaluation_tensors(side, train, train, z, 501, {})
    shown = found["shown_classes"]
    assert found["num_classes"].item() == 501
    assert len(shown.unique()) == len(shown) == 200
    assert (shown[0], shown[-1]) == (0, 500)
    assert set(found["labels"].tolist()) == set(found["unseen_labels"].tolist()) == set(shown.tolist())
    for at in (0, 77, 199):
        members = z[labels == shown[at]]
        assert torch.equal(found["features"][found["labels"] == shown[at]], members.half())
        top = torch.linalg.eigvalsh(members.double().T @ members.double() / len(members)).flip(0)
        assert torch.allclose(found["spectra"][at].double(), top, atol=1e-4)
        assert (labels[found["nearest_index"][at]] == shown[at]).all()
        assert found["train_sizes"][at] == len(members)
    angle = torch.linalg.svdvals(side.classifier.bases[shown[3]].T @ side.classifier.bases[shown[5]]).arccos()
    assert found["smallest_angles"][3, 5].item() == pytest.approx(angle.min().item(), abs=2e-3)
    assert found["effective_ranks"].shape == (501,)


@pytest.mark.parametrize(("num_classes", "there"), [(700, True), (701, False)])
def test_many_classes_have_their_mistakes_in_a_list(num_classes: int, there: bool) -> None:
    labels = torch.arange(4 * num_classes) % num_classes
    predicted = torch.where(torch.arange(len(labels)) % 3 == 0, (labels + 1) % num_classes, labels)
    predicted[labels == 5] = 9
    found = answered(labels, predicted, num_classes)
    assert set(found) == ({"confusion"} if there else {"class_sizes", "class_right", "confused"})
    if there:
        return
    table = confusion(labels, predicted, num_classes)
    assert torch.equal(found["class_sizes"], table.sum(1).int())
    assert torch.equal(found["class_right"], table.diagonal())
    assert found["confused"][0].tolist() == [5, 9, 4]
    assert all(table[i, j] == times for i, j, times in found["confused"].tolist())
    assert found["confused"][:, 2].tolist() == sorted(found["confused"][:, 2].tolist(), reverse=True)
    assert len(found["confused"]) == min(1000, int((table > 0).sum() - (table.diagonal() > 0).sum()))


def test_a_hundred_thousand_classes_have_no_table_of_pairs(tmp_path: Path) -> None:
    """Sizes are what a run of 100,000 classes would write, except for d: 2 and not 512."""
    num_classes, count = 100_000, 120_000
    labels = torch.arange(count) % num_classes
    angle = labels * 2.399963 + 0.01 * torch.randn(count)
    z = torch.stack([angle.cos(), angle.sin()], dim=1)
    side = TrainingSide(z, labels, NearestSubspace(num_classes, num_components=1).fit(z, labels), {})
    few = slice(0, 300)
    unseen, train = pictures(labels[few], 1, 2, 2), pictures(labels, 1, 2, 2)
    with LargestStorage() as storage:
        found = evaluation_tensors(side, train, unseen, z[few], num_classes, {"codes": torch.rand(4, num_classes)})
    assert storage.largest <= 2**24
    write_tensors(tmp_path / "e.safetensors", found)
    assert (tmp_path / "e.safetensors").stat().st_size < 6 * 2**20
    assert {name for name, value in found.items() if len(value.shape) and num_classes in value.shape} == {
        "effective_ranks",
        "class_sizes",
        "class_right",
        "codes",
    }


@pytest.mark.parametrize("num_classes", [500, 700, 2000, 20_000])
def test_many_classes_stay_under_16_mib(num_classes: int, tmp_path: Path) -> None:
    labels = torch.arange(max(6000, num_classes)) % num_classes
    z = nn.functional.normalize(torch.randn(len(labels), 500 if num_classes < 20_000 else 50), dim=1)
    split = pictures(labels, 3, 32, 32) if num_classes < 20_000 else pictures(labels, 1, 8, 8)
    side = TrainingSide(z, labels, NearestSubspace(num_classes, num_components=1).fit(z, labels), {})
    codes = torch.rand(1_000_000 // num_classes, num_classes)
    write_tensors(tmp_path / "e.safetensors", evaluation_tensors(side, split, split, z, num_classes, {"codes": codes}))
    assert (tmp_path / "e.safetensors").stat().st_size < 16 * 2**20


def test_the_strongest_samples_take_no_more_than_the_features() -> None:
    """Along their own class's directions: samples × classes × directions would be 24 times as much here."""
    labels = torch.arange(3000) % 300
    z = nn.functional.normalize(torch.randn(len(labels), 50), dim=1)
    side = TrainingSide(z, labels, NearestSubspace(300, num_components=4).fit(z, labels), {})
    with LargestStorage() as storage:
        _strongest(side.features, side.labels, side.classifier.bases, 8)
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
    found = evaluation_tensors(side_of(z, labels, 3), split, split, z, 3, {})
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
    found = evaluation_tensors(side_of(z, labels, 1), split, split, z, 1, {})
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
    found = evaluation_tensors(side, pictures(labels, 1, 8, 8), pictures(label, 1, 8, 8), unseen, 3, {})
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
