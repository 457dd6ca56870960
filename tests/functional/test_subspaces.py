"""Class subspaces, residuals and predictions of Eq. 8, overlap and principal angles."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import reference
import torch
from cases import CASES, DOUBLE, Case, relative
from seeds import randn, seeded
from torch import Tensor

from vmcr2.functional import (
    _subspaces as module,
    class_subspaces,
    nearest_subspace,
    principal_angles,
    subspace_overlap,
    subspace_residuals,
)
from vmcr2.functional._eigen import Method

METHODS: tuple[Method, ...] = get_args(Method)
LABELS = torch.tensor([0, 0, 1, 1])


def frames(k: int, d: int, r: int, seed: int = 0) -> Tensor:
    """Random orthonormal bases, (k, d, r)."""
    return torch.linalg.qr(randn(k, d, r, seed=seed)).Q


def ranks(case: Case) -> Tensor:
    """Of every class's second moment, for features in general position."""
    return (case.membership() > 0).sum(0).clamp_max(case.d)


def expected_bases(case: Case, r: int) -> list[Tensor]:
    """The reference's, without the arbitrary directions that it adds beyond a class's rank."""
    bases = reference.class_subspaces(case.features(), case.membership(), r)
    return [basis * (torch.arange(r) < rank) for basis, rank in zip(bases, ranks(case), strict=True)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bases_of_every_case(case: Case, method: Method) -> None:
    z, membership = case.features(), case.membership()
    for components in sorted({1, min(3, case.d), case.d}):
        bases, energies = class_subspaces(z, case.labels(), case.k, num_components=components, method=method)
        assert bases.shape == (case.k, case.d, components)
        assert energies.shape == (case.k, components)
        for j, expected in enumerate(expected_bases(case, components)):
            kept = (torch.arange(components) < ranks(case)[j]).double()
            assert (bases[j].T @ bases[j] - torch.diag(kept)).abs().max() < 1e-12  # orthonormal, or zero
            assert bases[j][:, kept == 0].abs().sum() == 0
            assert energies[j][kept == 0].abs().sum() == 0
            assert (bases[j] @ bases[j].T - expected @ expected.T).abs().max() < 1e-8
            weight = membership[:, j] / membership[:, j].sum().clamp_min(1e-300)
            assert (energies[j] - weight @ (z @ expected).square()).abs().max() < 1e-12


@pytest.mark.parametrize("case", CASES, ids=str)
def test_residuals_and_predictions_of_every_case(case: Case) -> None:
    r = max(1, case.d // case.k)
    bases = class_subspaces(case.features(), case.labels(), case.k).bases
    assert bases.shape[2] == r
    points = randn(50, case.d, seed=7)
    residuals, labels = reference.nearest_subspace(points, expected_bases(case, r))
    assert relative(subspace_residuals(points, bases), residuals) < 1e-9
    predicted = nearest_subspace(points, bases)
    two = residuals.topk(2, largest=False).values
    clear = two[:, 1] > two[:, 0] + 1e-9  # a batch of one, softly in two classes, gives both the same line
    assert torch.equal(predicted[clear], labels[clear])
    assert (residuals.gather(1, predicted[:, None]) <= two[:, :1] + 1e-9).all()
    assert predicted.dtype == torch.int64
    single = bases.float()
    assert relative(subspace_residuals(points.float(), single), residuals) < 1e-5
    assert subspace_residuals(points.float(), single).dtype == torch.float32


@pytest.mark.parametrize(
    ("d", "k", "r"), [(12, 3, 4), (13, 3, 4), (14, 3, 4), (3, 3, 1), (2, 3, 1), (5, 1, 5), (1, 1, 1), (1, 9, 1)]
)
def test_default_number_of_components(d: int, k: int, r: int) -> None:
    z, labels = randn(4 * k, d), torch.arange(4 * k) % k
    assert class_subspaces(z, labels).bases.shape == (k, d, r)
    assert class_subspaces(z, labels, 2 * k).bases.shape == (2 * k, d, max(1, d // (2 * k)))
    soft = reference.one_hot(labels, k + 1)
    assert class_subspaces(z, soft).bases.shape == (k + 1, d, max(1, d // (k + 1)))


def test_moments_are_not_centred() -> None:
    """The mean is the first direction; PCA would have thrown it away."""
    z = torch.tensor([[3.0, 1.0], [3.0, -1.0]], dtype=DOUBLE)
    bases, energies = class_subspaces(z, torch.tensor([0, 0]), num_components=1)
    assert bases.abs().squeeze().tolist() == pytest.approx([1.0, 0.0], abs=1e-14)
    assert energies.item() == pytest.approx(9.0, rel=1e-14)


def test_subspaces_that_were_constructed_are_found() -> None:
    """Where iteration iterates (d > r + 10), in both precisions, with very different class sizes."""
    true = frames(4, 60, 5)
    sizes = torch.tensor([8, 300, 20, 60])
    labels = torch.repeat_interleave(torch.arange(4), sizes)
    z = torch.cat([randn(int(n), 5, seed=j) @ true[j].T for j, n in enumerate(sizes)])
    z += 1e-4 * randn(*z.shape, seed=9)
    order = torch.randperm(len(z), generator=seeded(1))
    for dtype in (torch.float32, DOUBLE):
        bases = class_subspaces(z[order].to(dtype), labels[order], num_components=5).bases.double()
        cosines = torch.linalg.svdvals(bases.mT @ true)
        assert cosines.min() > 0.9999  # over 100 seeds: above 0.99999


@pytest.mark.parametrize("budget", [2**28, 0])
def test_budget_changes_the_way_not_the_result(budget: int) -> None:
    z, labels = torch.nn.functional.normalize(randn(400, 40), dim=1), torch.arange(400) % 4
    bases = class_subspaces(z, labels, budget=budget).bases
    oracle = class_subspaces(z, labels, method="eigh").bases
    energy = [(z[labels == j] @ b[j]).square().sum() for b in (bases, oracle) for j in range(4)]
    for j in range(4):
        assert 0.999 * energy[4 + j] <= energy[j] <= energy[4 + j] * (1 + 1e-12)
    points = randn(30, 40, seed=3)
    other = class_subspaces(z, labels, budget=2**28 - budget).bases
    assert relative(subspace_residuals(points, bases), subspace_residuals(points, other)) < 1e-9


def test_residuals_are_never_negative_and_zero_inside() -> None:
    bases = frames(3, 20, 6).float()
    inside = torch.cat([randn(50, 6, seed=j).float() @ bases[j].T for j in range(3)])
    residuals = subspace_residuals(inside, bases)
    own = residuals[torch.arange(150), torch.arange(150) // 50]
    assert (residuals >= 0).all()
    assert (own <= 1e-5 * inside.square().sum(1)).all()
    assert torch.equal(nearest_subspace(inside, bases), torch.arange(150) // 50)


def test_blocks_of_points_and_classes_meet_without_a_seam() -> None:
    """More classes than one block of 1024 and more points than one block of 16384."""
    d, k, n = 8, 1100, 17000
    bases, z = frames(k, d, 1), randn(n, d, seed=1)
    share = (z @ bases.squeeze(2).T).square()
    assert torch.equal(nearest_subspace(z, bases), share.argmax(1))
    residuals = z.square().sum(1, keepdim=True) - share
    assert (subspace_residuals(z, bases) - residuals).abs().max() < 1e-12


def test_ties_go_to_the_first_class_even_across_blocks() -> None:
    bases = frames(1300, 6, 1)
    bases[1200] = bases[40]
    bases[41] = -bases[40]
    z = bases[[40, 1200, 1299]].squeeze(2)
    assert nearest_subspace(z, bases).tolist() == [40, 40, 1299]


def test_a_zero_vector_and_one_outside_all_subspaces_get_the_first_class() -> None:
    bases = torch.eye(4, dtype=DOUBLE)[:, :3].T.unsqueeze(2)
    z = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0]], dtype=DOUBLE)
    assert nearest_subspace(z, bases).tolist() == [0, 0]
    assert subspace_residuals(z, bases).tolist() == [[0.0] * 3, [4.0] * 3]


def test_nothing_is_ever_nearest_to_an_absent_class() -> None:
    """Not even a zero vector, or one outside all subspaces, whose distance to all classes is the same."""
    bases = torch.zeros(4, 5, 1, dtype=DOUBLE)
    bases[1, 0] = bases[3, 1] = 1.0
    z = torch.cat([torch.zeros(1, 5, dtype=DOUBLE), torch.eye(5, dtype=DOUBLE), randn(50, 5)])
    assert set(nearest_subspace(z, bases).tolist()) <= {1, 3}


def two_planes(first: float, second: float) -> Tensor:
    """Two planes of R⁵ with these principal angles, in bases that do not show it: (2, 5, 2)."""
    axes = torch.linalg.qr(randn(5, 5, seed=2)).Q
    tilted = [math.cos(t) * axes[:, i] + math.sin(t) * axes[:, i + 2] for i, t in enumerate((first, second))]
    turn = torch.linalg.qr(randn(2, 2, seed=3)).Q
    return torch.stack([axes[:, :2] @ turn, torch.stack(tilted, dim=1) @ turn.T])


ANGLES = [(0.0, 0.0), (0.0, math.pi / 2), (0.3, 0.3), (0.2, 1.1), (1e-3, math.pi / 2), (math.pi / 2, math.pi / 2)]


@pytest.mark.parametrize("angles", ANGLES, ids=str)
def test_overlap_and_angles_of_known_planes(angles: tuple[float, float]) -> None:
    bases = two_planes(*angles)
    mean_cosine = sum(math.cos(t) ** 2 for t in angles) / 2
    expected = torch.tensor([[1.0, mean_cosine], [mean_cosine, 1.0]], dtype=DOUBLE)
    assert (subspace_overlap(bases) - expected).abs().max() < 1e-14
    found = principal_angles(bases)
    assert found.shape == (2, 2, 2)
    # an angle near 0 is read off its cosine, which loses half of the digits
    assert (found[0, 1] - torch.tensor(angles, dtype=DOUBLE)).abs().max() < 1e-7
    assert (found - found.transpose(0, 1)).abs().max() < 1e-7
    assert found.diagonal().abs().max() < 1e-7
    single = principal_angles(bases.float())
    assert single.dtype == torch.float32
    assert (single - found).abs().max() < 2e-3


def test_angles_away_from_zero_are_exact() -> None:
    found = principal_angles(two_planes(0.4, 1.3))[0, 1]
    assert (found - torch.tensor([0.4, 1.3], dtype=DOUBLE)).abs().max() < 1e-14


def test_overlap_and_angles_of_different_ranks() -> None:
    """A line at the angle t to a plane, another plane that contains the line, and an absent class."""
    t = 0.7
    bases = torch.zeros(4, 4, 2, dtype=DOUBLE)
    bases[0, 0, 0] = bases[0, 1, 1] = 1.0
    bases[1, 0, 0], bases[1, 2, 0] = math.cos(t), math.sin(t)
    bases[2, 0, 0] = bases[2, 2, 1] = 1.0
    c = math.cos(t) ** 2
    expected = torch.tensor(
        [[1.0, c, 0.5, 0.0], [c, 1.0, 1.0, 0.0], [0.5, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=DOUBLE
    )
    assert (subspace_overlap(bases) - expected).abs().max() < 1e-15
    found = principal_angles(bases)
    assert found[0, 1].tolist() == pytest.approx([t, math.pi / 2], abs=1e-12)  # what is missing counts as orthogonal
    assert found[2, 1].tolist() == pytest.approx([0.0, math.pi / 2], abs=1e-7)
    assert found[0, 2].tolist() == pytest.approx([0.0, math.pi / 2], abs=1e-7)
    assert found[3].flatten().tolist() == pytest.approx([math.pi / 2] * 8)


def test_one_class() -> None:
    bases = frames(1, 6, 3)
    assert (subspace_overlap(bases) - 1).abs().max() < 1e-14
    assert subspace_overlap(bases).shape == (1, 1)
    assert principal_angles(bases).abs().max() < 1e-7
    assert principal_angles(bases).shape == (1, 1, 3)
    z = randn(9, 6)
    assert nearest_subspace(z, bases).tolist() == [0] * 9
    whole = class_subspaces(z, torch.zeros(9, dtype=torch.int64))
    assert whole.bases.shape == (1, 6, 6)
    assert subspace_residuals(z, whole.bases).max() < 1e-12


@pytest.mark.parametrize("budget", [2**24, 4000])
def test_overlap_of_many_classes_in_blocks(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COORDINATE_BUDGET", budget)
    bases = frames(600, 6, 2)  # two blocks of classes; with the small budget 400 blocks of points
    bases[7, :, 1] = 0
    bases[8] = 0
    flat = bases.permute(0, 2, 1).reshape(-1, 6)
    expected = (flat @ flat.T).square().view(600, 2, 600, 2).sum((1, 3))
    rank = torch.full((600,), 2.0, dtype=DOUBLE)
    rank[7], rank[8] = 1, 0
    expected = expected / torch.minimum(rank[:, None], rank).clamp_min(1)
    assert (subspace_overlap(bases) - expected).abs().max() < 1e-13


def test_angles_agree_with_the_overlap() -> None:
    bases = frames(5, 9, 3)
    assert (principal_angles(bases).cos().square().mean(2) - subspace_overlap(bases)).abs().max() < 1e-13


def test_autocast_changes_nothing() -> None:
    z, labels = randn(60, 20).float(), torch.arange(60) % 3

    def everything() -> list[Tensor]:
        bases, energies = class_subspaces(z, labels)
        angles, overlap = principal_angles(bases), subspace_overlap(bases)
        return [bases, energies, angles, overlap, subspace_residuals(z, bases), nearest_subspace(z, bases)]

    plain = everything()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = everything()
    assert all(torch.equal(a, b) for a, b in zip(plain, inside, strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_deterministic_without_a_generator_or_a_graph(method: Method) -> None:
    z, labels = randn(60, 30).requires_grad_(), torch.arange(60) % 3
    state = torch.get_rng_state()
    first = class_subspaces(z, labels, method=method)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    second = class_subspaces(z, labels, method=method)
    assert torch.equal(first.bases, second.bases)
    assert torch.equal(first.energies, second.energies)
    assert not first.bases.requires_grad


@pytest.mark.parametrize(
    ("z", "labels", "options", "message"),
    [
        (torch.eye(4), LABELS, {"num_components": 0}, r"num_components must lie in 1\.\.4.*got 0"),
        (torch.eye(4), LABELS, {"num_components": 5}, r"num_components must lie in 1\.\.4.*got 5"),
        (torch.eye(4), LABELS, {"num_classes": 1}, "labels .*row 2"),
        (torch.eye(4), LABELS, {"num_classes": 0}, "num_classes must be at least 1"),
        (torch.eye(4), LABELS, {"method": "svd"}, "method must be"),
        (torch.eye(4), torch.full((4,), -1), {}, "labels"),
        (torch.eye(4), LABELS - 1, {}, "labels .*row 0"),
        (torch.eye(4), LABELS[:0], {}, "labels has 0 entries"),
        (torch.eye(4), LABELS[:2], {}, "labels has 2 entries"),
        (torch.eye(4), LABELS.float(), {}, "labels must be integers"),
        (torch.eye(4), LABELS.tolist(), {}, "labels must be a tensor"),
        (torch.eye(4), torch.ones(4, 2), {}, "memberships must .*sum to 1"),
        (torch.ones(4), LABELS, {}, "z must be a matrix"),
        (torch.eye(4).log(), LABELS, {}, "z has NaN or inf in row 0"),
    ],
)
def test_bad_input(z: Any, labels: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        class_subspaces(z, labels, **options)


@pytest.mark.parametrize(
    ("z", "bases", "message"),
    [
        (torch.eye(4), torch.eye(4), r"bases must be \(k, d, r\)"),
        (torch.eye(3), frames(2, 4, 1), "z has 3 features per row, expected 4"),
        (torch.ones(4), frames(2, 4, 1), "z must be a matrix"),
        (torch.diag(torch.tensor([0.0, 1.0, torch.inf, 0.0])), frames(2, 4, 1), "z has NaN or inf in row 2"),
    ],
)
def test_bad_points(z: Tensor, bases: Tensor, message: str) -> None:
    for function in (subspace_residuals, nearest_subspace):
        with pytest.raises(ValueError, match=message):
            function(z, bases)
