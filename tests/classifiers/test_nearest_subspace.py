"""NearestSubspace: fit and partial_fit agree, the state travels, memory stays bounded, errors say what to do."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import reference
import torch
from cases import CASES, DOUBLE, Case, relative
from recording import LargestStorage
from seeds import randn, seeded
from torch import Tensor, nn

from vmcr2 import NearestSubspace

KEYS = {"subspace_bases", "subspace_energies", "scatter", "sizes"}
POINTS = 40


def clusters(k: int = 3, d: int = 20, n: int = 30, r: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Classes near random subspaces of dimension r, with spectra that decay: (k·n, d) and labels."""
    axes = torch.linalg.qr(randn(k, d, r, seed=seed)).Q
    scale = 0.7 ** torch.arange(r, dtype=DOUBLE)
    z = (randn(k, n, r, seed=seed + 1) * scale) @ axes.mT + 0.02 * randn(k, n, d, seed=seed + 2)
    order = torch.randperm(k * n, generator=seeded(seed + 3))
    return z.reshape(k * n, d)[order], torch.arange(k).repeat_interleave(n)[order]


def same_answers(a: NearestSubspace, b: NearestSubspace, d: int, tolerance: float = 1e-9) -> bool:
    points = randn(POINTS, d, seed=77)
    close = relative(a.residuals(points), b.residuals(points)) < tolerance
    return close and torch.equal(a.predict(points), b.predict(points))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_equation_8(case: Case) -> None:
    z, membership = case.features(), case.membership()
    r = max(1, case.d // case.k)
    rank = (membership > 0).sum(0).clamp_max(case.d)
    bases = reference.class_subspaces(z, membership, r)
    bases = [basis * (torch.arange(r) < n) for basis, n in zip(bases, rank, strict=True)]
    points = randn(POINTS, case.d, seed=77)
    residuals, labels = reference.nearest_subspace(points, bases)
    two = residuals.topk(2, largest=False).values
    clear = two[:, 1] > two[:, 0] + 1e-9  # a batch of one, softly in two classes, gives both the same line
    fitted = NearestSubspace(case.k).fit(z, case.labels())
    added = NearestSubspace(case.k)
    for start in range(0, case.m, 5):
        added.partial_fit(z[start : start + 5], case.labels()[start : start + 5])
    for classifier in (fitted, added):
        assert relative(classifier.residuals(points), residuals) < 1e-9
        predicted = classifier.predict(points)
        assert torch.equal(predicted[clear], labels[clear])
        assert (residuals.gather(1, predicted[:, None]) <= two[:, :1] + 1e-9).all()
        assert torch.equal(classifier(points), predicted)


def test_learns_what_can_be_learned() -> None:
    z, labels = clusters(k=4, d=30, n=40, r=4)
    classifier = NearestSubspace(num_components=4).fit(z[::2], labels[::2])
    assert torch.equal(classifier.predict(z[1::2]), labels[1::2])


@pytest.mark.parametrize("sizes", [(1,), (7, 2), (90,)], ids=str)
@pytest.mark.parametrize("options", [(3, None), (None, 2), (3, 2), (5, None)], ids=str)
def test_partial_fit_in_any_order_equals_fit(options: tuple[int | None, int | None], sizes: tuple[int, ...]) -> None:
    z, labels = clusters()
    expected = NearestSubspace(*options).fit(z, labels)
    for seed in range(3):
        order = torch.randperm(len(z), generator=seeded(seed))
        if seed == 2:
            order = labels.argsort(descending=True)  # class after class, the last one first
        classifier = NearestSubspace(*options)
        start, turn = 0, 0
        while start < len(z):
            rows = order[start : start + sizes[turn % len(sizes)]]
            assert classifier.partial_fit(z[rows], labels[rows]) is classifier
            start, turn = start + len(rows), turn + 1
        assert same_answers(classifier, expected, 20)


def test_partial_fit_with_memberships_equals_fit() -> None:
    z, _ = clusters()
    soft = torch.softmax(3 * randn(90, 3, seed=5), dim=1)
    expected = NearestSubspace(3, 4).fit(z, soft)
    classifier = NearestSubspace(3, 4).partial_fit(z[:50], soft[:50]).partial_fit(z[50:], soft[50:])
    assert same_answers(classifier, expected, 20)


def test_classes_are_added_as_they_come() -> None:
    z, labels = clusters(k=5)
    classifier = NearestSubspace(num_components=3)
    order = labels.argsort(stable=True)
    for step, rows in enumerate(order.split(30)):  # one new class a time
        classifier.partial_fit(z[rows], labels[rows])
        assert classifier.residuals(z[:2]).shape == (2, step + 1)
        seen = labels <= step
        assert same_answers(classifier, NearestSubspace(num_components=3).fit(z[seen], labels[seen]), 20)
    classifier.partial_fit(z[labels == 0], labels[labels == 0])  # fewer classes than known: nothing is lost
    assert classifier.residuals(z[:2]).shape == (2, 5)
    assert same_answers(classifier, NearestSubspace(num_components=3).fit(z, labels), 20)  # doubled, so the same mean


def test_num_classes_fixes_the_default_number_of_components() -> None:
    z, labels = clusters()  # d = 20
    assert NearestSubspace().fit(z, labels).bases.shape == (3, 20, 6)
    assert NearestSubspace(5).fit(z, labels).bases.shape == (5, 20, 4)
    state = NearestSubspace(5).partial_fit(z[:4], labels[:4]).state_dict()
    assert state["subspace_bases"].shape == (5, 20, 4)
    assert NearestSubspace(50).fit(z, labels).bases.shape == (50, 20, 1)


def round_trip(classifier: NearestSubspace, fresh: NearestSubspace) -> NearestSubspace:
    """Through a file."""
    file = io.BytesIO()
    torch.save(classifier.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


@pytest.mark.parametrize("options", [(3, None), (None, 2)], ids=str)
@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_state_travels_into_an_unfitted_instance(way: str, options: tuple[int | None, int | None]) -> None:
    z, labels = clusters()
    original = getattr(NearestSubspace(*options), way)(z, labels)
    assert set(original.state_dict()) == KEYS
    copied = round_trip(original, NearestSubspace(*options))
    assert copied.fitted
    points = randn(POINTS, 20, seed=77)
    assert torch.equal(copied.residuals(points), original.residuals(points))
    assert torch.equal(copied.predict(points), original.predict(points))
    assert copied.bases.dtype == DOUBLE
    # what is loaded is the copy's own
    copied.bases.zero_()
    assert original.bases.abs().max() > 0


def test_partial_fit_goes_on_after_loading() -> None:
    z, labels = clusters(k=4)
    order = labels.argsort(stable=True)
    first, second = order[:70], order[70:]  # the last class comes only after loading
    original = NearestSubspace(num_components=3).partial_fit(z[first], labels[first])
    resumed = round_trip(original, NearestSubspace(num_components=3)).partial_fit(z[second], labels[second])
    assert same_answers(resumed, NearestSubspace(num_components=3).fit(z, labels), 20)
    assert original.residuals(z[:1]).shape == (1, 3)  # the original did not go on


def test_state_is_up_to_date_after_every_partial_fit() -> None:
    z, labels = clusters()
    classifier = NearestSubspace(3).partial_fit(z[:40], labels[:40])
    classifier.predict(z)
    classifier.partial_fit(z[40:], labels[40:])
    inside = nn.ModuleDict({"head": classifier})  # also as a part of a larger module
    expected = NearestSubspace(3).fit(z, labels)
    other = nn.ModuleDict({"head": NearestSubspace(3)})
    other.load_state_dict(inside.state_dict())
    loaded = other["head"]
    assert isinstance(loaded, NearestSubspace)
    assert same_answers(loaded, expected, 20)
    assert same_answers(copy.deepcopy(classifier), expected, 20)


def test_loading_replaces_what_was_learned() -> None:
    z, labels = clusters()
    source = NearestSubspace(3).fit(z, labels)
    target = NearestSubspace(3).partial_fit(randn(30, 8), torch.arange(30) % 3)  # other size, and never refreshed
    target.load_state_dict(source.state_dict())
    assert same_answers(target, source, 20)
    with pytest.raises(ValueError, match="partial_fit cannot continue after fit"):
        target.partial_fit(z, labels)
    unfitted = NearestSubspace(3)
    target.load_state_dict(unfitted.state_dict())
    assert not target.fitted


def test_fit_forgets() -> None:
    z, labels = clusters()
    other, other_labels = clusters(k=2, d=12, seed=30)
    expected = NearestSubspace().fit(z, labels)
    classifier = NearestSubspace().fit(other, other_labels).fit(z, labels)
    assert same_answers(classifier, expected, 20)
    expected = NearestSubspace(3).fit(z, labels)
    classifier = NearestSubspace(3).partial_fit(other, other_labels).fit(z, labels)
    assert same_answers(classifier, expected, 20)
    assert len(classifier.sizes) == 0  # no moments of the others are left


def test_a_refused_batch_changes_nothing() -> None:
    z, labels = clusters()
    classifier = NearestSubspace(num_components=3).partial_fit(z, labels)
    for bad, bad_labels in [(z[:2].log(), labels[:2]), (z[:2], torch.tensor([9, -1])), (z[:2, :5], labels[:2])]:
        with pytest.raises(ValueError, match=r"^(z|labels) "):
            classifier.partial_fit(bad, bad_labels)
    assert same_answers(classifier, NearestSubspace(num_components=3).fit(z, labels), 20)
    with pytest.raises(ValueError, match="z"):
        classifier.fit(z.log(), labels)
    assert same_answers(classifier, NearestSubspace(num_components=3).fit(z, labels), 20)


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_double_moves_everything(way: str) -> None:
    z, labels = clusters()
    single = z.float()
    classifier = getattr(NearestSubspace(3, 3), way)(single, labels)
    assert classifier.residuals(single).dtype == torch.float32
    assert classifier.double() is classifier
    assert {buffer.dtype for buffer in classifier.buffers()} == {DOUBLE}
    assert classifier.residuals(single).dtype == DOUBLE
    expected = NearestSubspace(3, 3).fit(single.double(), labels)
    assert same_answers(classifier, expected, 20, 1e-5)
    if way == "partial_fit":
        classifier.partial_fit(single, labels)  # still float32 samples, kept in float64
        assert classifier.scatter.dtype == DOUBLE
        assert same_answers(classifier, expected, 20, 1e-5)
        assert classifier.sizes.tolist() == [60.0] * 3


def test_precision_rises_with_the_samples_in_partial_fit() -> None:
    z, labels = clusters()
    classifier = NearestSubspace(3).double()
    classifier.partial_fit(z[:45].float(), labels[:45]).partial_fit(z[45:], labels[45:])
    both = torch.cat([z[:45].float().double(), z[45:]])
    assert same_answers(classifier, NearestSubspace(3).fit(both, labels), 20)


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_autocast_changes_nothing(way: str) -> None:
    """The subspaces are made at the first question after partial_fit: that too must be in full precision."""
    z, labels = clusters()
    single = z.float()
    plain, inside = NearestSubspace(3), NearestSubspace(3)
    getattr(plain, way)(single, labels)
    residuals = plain.residuals(single)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        getattr(inside, way)(single, labels)
        assert torch.equal(inside.residuals(single), residuals)
    saved = getattr(NearestSubspace(3), way)(single, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        state = saved.state_dict()
    assert torch.equal(state["subspace_bases"], plain.state_dict()["subspace_bases"])


def test_a_hundred_thousand_points_against_a_thousand_classes() -> None:
    """No N×k×r tensor, not even N×k: the classes are met in blocks."""
    n, k, d, r = 100_000, 1000, 64, 3
    generator = seeded(0)
    axes = torch.linalg.qr(torch.randn(k, d, r, generator=generator)).Q
    samples = (torch.randn(k, 5, r, generator=generator) @ axes.mT).reshape(-1, d)
    classifier = NearestSubspace(num_components=r).fit(samples, torch.arange(k).repeat_interleave(5))
    labels = torch.randint(k, (n,), generator=generator)
    points = torch.bmm(torch.randn(n, 1, r, generator=generator), axes[labels].mT).squeeze(1)
    with LargestStorage() as memory:
        predicted = classifier.predict(points)
    assert torch.equal(predicted, labels)  # every point lies in its own class's subspace
    assert memory.largest >= points.numel() / 2  # it did look
    assert memory.largest <= 2**24 < n * k / 5
    with LargestStorage() as memory:
        residuals = classifier.residuals(points[:20_000])
    assert memory.largest <= 20_000 * k  # the result itself, and nothing larger
    assert torch.equal(residuals.argmin(1), labels[:20_000])


def test_fit_makes_no_moments_for_many_classes() -> None:
    k, d = 400, 256
    z = torch.nn.functional.normalize(randn(2 * k, d), dim=1).float()
    with LargestStorage() as memory:
        classifier = NearestSubspace(num_components=1).fit(z, torch.arange(2 * k) % k)
    assert memory.largest <= 2 * k * d * 11 < k * d * d / 10
    assert torch.equal(classifier.predict(z), torch.arange(2 * k) % k)


def test_ties_and_the_zero_vector() -> None:
    axis = torch.eye(3, dtype=DOUBLE)
    z = torch.stack([axis[0], axis[0], axis[1]])  # classes 0 and 1 are the same line
    classifier = NearestSubspace(num_components=1).fit(z, torch.tensor([0, 1, 2]))
    points = torch.stack([axis[0], -2 * axis[0], axis[1], torch.zeros(3, dtype=DOUBLE)])
    assert classifier.predict(points).tolist() == [0, 0, 2, 0]
    assert classifier.residuals(points[3:]).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_classes_without_samples_are_never_predicted(way: str) -> None:
    z, labels = clusters()
    classifier = getattr(NearestSubspace(8, 3), way)(z, 2 * labels + 1)  # 1, 3 and 5 of 0..7
    points = randn(500, 20, seed=4)
    assert set(classifier.predict(points).tolist()) == {1, 3, 5}
    energy = points.square().sum(1)
    for absent in (0, 2, 4, 6, 7):
        assert torch.allclose(classifier.residuals(points)[:, absent], energy)
    zero = torch.zeros(1, 20, dtype=DOUBLE)
    assert classifier.predict(zero).item() in {1, 3, 5}


def test_one_class() -> None:
    z = randn(9, 4)
    for classifier in (
        NearestSubspace().fit(z, torch.zeros(9, dtype=torch.int64)),
        NearestSubspace(1).partial_fit(z, torch.zeros(9, dtype=torch.int64)),
    ):
        assert classifier.predict(z).tolist() == [0] * 9
        assert classifier.residuals(z).max() < 1e-12  # all 4 dimensions are kept
        assert classifier.residuals(z).shape == (9, 1)


def test_a_class_of_one_sample() -> None:
    z = torch.eye(4, dtype=DOUBLE)[:3]
    classifier = NearestSubspace(2, 2).fit(z, torch.tensor([0, 1, 1]))
    assert classifier.predict(torch.eye(4, dtype=DOUBLE)[:3]).tolist() == [0, 1, 1]
    assert classifier.residuals(torch.ones(1, 4, dtype=DOUBLE)).squeeze().tolist() == pytest.approx([3.0, 2.0])
    assert classifier.energies.flatten().tolist() == pytest.approx([1.0, 0.0, 0.5, 0.5])


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_no_generator_is_touched(way: str) -> None:
    z, labels = clusters()
    state = torch.get_rng_state()
    first = getattr(NearestSubspace(4), way)(z, labels)
    first.predict(z)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    second = getattr(NearestSubspace(4), way)(z, labels)
    assert torch.equal(first.state_dict()["subspace_bases"], second.state_dict()["subspace_bases"])


def test_nothing_is_learned_by_gradients() -> None:
    z, labels = clusters()
    leaf, soft = z.clone().requires_grad_(), torch.softmax(randn(90, 3, seed=5), dim=1).requires_grad_()
    for target in (labels, soft):
        for classifier in (NearestSubspace(3).fit(leaf, target), NearestSubspace(3).partial_fit(leaf, target)):
            assert list(classifier.parameters()) == []
            assert not classifier.residuals(leaf).requires_grad
            assert not any(buffer.requires_grad for buffer in classifier.buffers())


def test_unfitted() -> None:
    for classifier in (NearestSubspace(), NearestSubspace(3, 2)):
        assert not classifier.fitted
        for ask in (classifier.predict, classifier.residuals, classifier):
            with pytest.raises(ValueError, match=r"call fit\(z, labels\) first"):
                ask(torch.eye(3))


def test_partial_fit_needs_to_know_the_number_of_components() -> None:
    with pytest.raises(ValueError, match="partial_fit needs num_classes or num_components"):
        NearestSubspace().partial_fit(torch.eye(4), torch.tensor([0, 0, 1, 1]))


def test_partial_fit_after_fit() -> None:
    z, labels = clusters()
    classifier = NearestSubspace(3).fit(z, labels)
    with pytest.raises(ValueError, match="partial_fit cannot continue after fit"):
        classifier.partial_fit(z, labels)
    assert same_answers(classifier, NearestSubspace(3).fit(z, labels), 20)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_bad_values_name_their_row(value: float) -> None:
    z, labels = clusters()
    bad = z.clone()
    bad[17, 3] = value
    fitted = NearestSubspace(3).fit(z, labels)
    for call in (
        lambda: NearestSubspace(3).fit(bad, labels),
        lambda: NearestSubspace(3).partial_fit(bad, labels),
        lambda: fitted.predict(bad),
        lambda: fitted.residuals(bad),
    ):
        with pytest.raises(ValueError, match="z has NaN or inf in row 17"):
            call()


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    ("z", "labels", "message"),
    [
        (torch.eye(4), torch.tensor([0, 0, 1, 2]), "labels .*row 3"),
        (torch.eye(4), torch.tensor([0, 0, -1, 1]), "labels .*row 2"),
        (torch.eye(4), torch.tensor([0, 1]), "labels has 2 entries, z has 4"),
        (torch.eye(4), torch.tensor([0.0, 0.0, 1.0, 1.0]), "labels must be integers"),
        (torch.eye(4), [0, 0, 1, 1], "labels must be a tensor"),
        (torch.eye(4), torch.full((4, 2), 0.7), "memberships must .*sum to 1"),
        (torch.ones(4), torch.tensor([0, 0, 1, 1]), "z must be a matrix"),
        ([[1.0, 0.0]], torch.tensor([0]), "z must be a matrix"),
        (torch.eye(4).long(), torch.tensor([0, 0, 1, 1]), "z must be floating point"),
        (torch.eye(4)[:0], torch.tensor([], dtype=torch.int64), "z is empty"),
        (torch.eye(2), torch.tensor([0, 1]), "num_components"),
    ],
)
def test_bad_samples(way: str, z: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(NearestSubspace(2, 3), way)(z, labels)


@pytest.mark.parametrize(("name", "value"), [("num_classes", 0), ("num_components", 0), ("num_components", -1)])
def test_bad_sizes(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        NearestSubspace(**{name: value})


def test_points_of_another_dimension() -> None:
    z, labels = clusters()
    for classifier in (NearestSubspace(3).fit(z, labels), NearestSubspace(3).partial_fit(z, labels)):
        for ask in (classifier.predict, classifier.residuals):
            with pytest.raises(ValueError, match="z has 7 features per row, expected 20"):
                ask(z[:, :7])
            with pytest.raises(ValueError, match="z must be a matrix"):
                ask(z[0])
    with pytest.raises(ValueError, match="z has 7 features per row, expected 20"):
        NearestSubspace(3).partial_fit(z, labels).partial_fit(z[:, :7], labels)
