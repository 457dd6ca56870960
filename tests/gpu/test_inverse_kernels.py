"""Inverses by Triton against float64, and training steps that use them against the losses' other way."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vmcr2.functional import ClassMoments, _soft_logdets, normalize_rows, rate_reduction
from vmcr2.functional._inverses import (
    inverses_of_identity_plus,
    invert_by_sweeps,
    newton_inverse_identity_plus,
    rows_times,
)
from vmcr2.functional._linalg import Guard
from vmcr2.losses import MCR2Loss
from vmcr2.losses._carried import CarriedAhead

pytest.importorskip("triton")

from vmcr2.models._unit_kernel import UnitRows
from vmcr2.training._average_kernel import MovingMeans

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")


def relative(got: Tensor, wanted: Tensor) -> float:
    return float((got.double() - wanted.double()).norm() / wanted.double().norm())


def rows(count: int, dim: int, spread: float = 1.0) -> Tensor:
    """Unit rows; with a small ``spread`` almost parallel ones, as an untrained network gives."""
    centre = torch.zeros(dim) if spread >= 1 else torch.ones(dim)
    return normalize(centre + spread * torch.randn(count, dim), dim=1).cuda()


def by_class(labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    counts = torch.bincount(labels, minlength=num_classes)
    return torch.argsort(labels, stable=True), counts.cumsum(0) - counts, counts


@pytest.mark.parametrize("size", [64, 192, 512])
@pytest.mark.parametrize("largest", [10.0, 1e4])
def test_sweeps_invert(size: int, largest: float) -> None:
    torch.manual_seed(0)
    axes = torch.linalg.qr(torch.randn(3, size, size, dtype=torch.float64))[0]
    values = torch.linspace(1.0, largest, size, dtype=torch.float64)
    matrices = axes * values @ axes.mT
    got = invert_by_sweeps(matrices.float().cuda().contiguous())
    assert relative(got.cpu(), axes / values @ axes.mT) < 1e-6 * largest
    assert torch.allclose(got, got.mT, rtol=1e-4, atol=1e-6 * largest)


@pytest.mark.parametrize(("size", "few", "largest"), [(64, 5, 1e3), (128, 5, 3e3), (512, 5, 1e4), (512, 20, 1e3)])
def test_sweeps_invert_where_a_few_directions_have_nearly_all(size: int, few: int, largest: float) -> None:
    """As in the dictionary of an untrained network.

    Without the kernels' corrections the errors, emulated in float32, are 0.002 for 64 and 0.6 to 90 for the others.
    """
    torch.manual_seed(0)
    axes = torch.linalg.qr(torch.randn(3, size, few, dtype=torch.float64))[0]
    identity, projection = torch.eye(size, dtype=torch.float64), axes @ axes.mT
    got = invert_by_sweeps((identity + largest * projection).float().cuda().contiguous())
    assert relative(got.cpu(), identity - largest / (1 + largest) * projection) < 1e-6 * largest


@pytest.mark.parametrize("spread", [1.0, 0.1])
@pytest.mark.parametrize("dim", [256, 500])
def test_newton_inverts(spread: float, dim: int) -> None:
    torch.manual_seed(0)
    z, alpha = rows(2000, dim, spread), dim / (2000 * 0.5)
    padded, residual = newton_inverse_identity_plus(z, alpha)
    inverse = padded[:dim, :dim]
    wanted = torch.linalg.inv(torch.eye(dim, device=CUDA) + alpha * z.double().T @ z.double())
    assert residual < 0.01
    tolerance = 1e-4 if spread == 1 else 2e-3  # almost parallel rows: one eigenvalue is 500, the others 1
    assert relative(inverse, wanted) < tolerance
    assert relative(rows_times(z.unsqueeze(0), padded.unsqueeze(0), 3.0)[0], 3.0 * z.double() @ wanted) < tolerance


def test_small_inverses_of_pairs() -> None:
    torch.manual_seed(0)
    P = torch.randn(7, 45, 30, device=CUDA)
    got = inverses_of_identity_plus(0.3 * P, P, Guard(False))
    wanted = torch.linalg.inv(torch.eye(45, device=CUDA) + 0.3 * P.double() @ P.double().mT)
    assert got.shape == (7, 45, 45)
    assert relative(got, wanted) < 1e-5


def test_moments_follow_the_rows_that_come_and_go() -> None:
    torch.manual_seed(0)
    k, dim = 5, 100
    kept, labels = rows(700, dim), torch.randint(0, k - 1, (700,), device=CUDA)  # the last class has no rows yet
    moments = ClassMoments(k, dim, CUDA)
    moments.recompute(kept, *by_class(labels, k))
    moments.add(kept[:90], *by_class(labels[:90], k), -1.0)
    coming, theirs = rows(90, dim), torch.randint(0, k, (90,), device=CUDA)
    moments.add(coming, *by_class(theirs, k), 1.0)
    now, of_now = torch.cat([kept[90:], coming]).double(), torch.cat([labels[90:], theirs])
    scales = torch.linspace(0.1, 3.0, k, device=CUDA)
    inverses = moments.inverses_of_identity_plus(scales, torch.empty_like(moments.sums))
    for j in range(k):
        members = now[of_now == j]
        wanted = torch.linalg.inv(torch.eye(dim, device=CUDA) + scales[j].double() * members.T @ members)
        assert relative(inverses[j, :dim, :dim], wanted) < 1e-5


def test_carried_statistics_give_the_gradient_of_the_whole_memory() -> None:
    torch.manual_seed(0)
    k, dim, batch = 6, 96, 120
    plain = MCR2Loss(k, memory=500, dim=dim, max_gradient=None, validate=False).cuda()
    quick = copy.deepcopy(plain)
    quick.keep_statistics(None)
    for step in range(12):  # the memory is full after five
        z, labels = torch.randn(batch, dim, device=CUDA), torch.randint(0, k, (batch,), device=CUDA)
        one, two = (z.clone().requires_grad_() for _ in range(2))
        plain.surrogate(one, labels, plain.look_ahead(labels)).backward()
        ahead = quick.look_ahead(labels)
        assert isinstance(ahead, CarriedAhead)
        quick.surrogate(two, labels, ahead).backward()
        assert one.grad is not None
        assert two.grad is not None
        assert relative(two.grad, one.grad) < 1e-4, step
        torch.cuda.synchronize()
        assert torch.equal(plain.memory_labels, quick.memory_labels)
        assert torch.equal(plain.memory_features, quick.memory_features)
    assert not quick.fault


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_unit_rows(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (3 * torch.randn(300, 77, device=CUDA)).to(dtype)
    x[5] = 0.0
    x[6] *= 1e8
    x[7] *= 1e-35  # counts as zero
    one, two = (x.clone().requires_grad_() for _ in range(2))
    upstream = torch.randn(300, 77, device=CUDA)
    got, wanted = UnitRows.apply(one), normalize_rows(two.float())  # type: ignore[no-untyped-call]
    got.backward(upstream)
    wanted.backward(upstream)
    assert one.grad is not None
    assert two.grad is not None
    assert relative(got, wanted) < 1e-6
    assert relative(one.grad, two.grad) < (1e-5 if dtype == torch.float32 else 1e-2)


def test_moving_means() -> None:
    torch.manual_seed(0)
    shapes = [(7,), (300, 41), (64, 32, 3, 3)]
    weights = [torch.randn(shape, device=CUDA) for shape in shapes]
    weights[2] = weights[2].contiguous(memory_format=torch.channels_last)
    means = [torch.randn(shape, device=CUDA) for shape in shapes]
    means[2] = means[2].contiguous(memory_format=torch.channels_last)
    wanted = [mean.double() for mean in means]
    steps = torch.zeros((), dtype=torch.int64, device=CUDA)
    moving = MovingMeans(weights, means, steps, 0.9)  # type: ignore[no-untyped-call]
    for count in range(1, 120):
        steps.fill_(count)
        moving.update()
        share = max(9 / (count + 10), 1 - 0.9)
        wanted = [old + share * (weight.double() - old) for old, weight in zip(wanted, weights, strict=True)]
    for got, target in zip(means, wanted, strict=True):
        assert relative(got, target) < 1e-5


@pytest.mark.parametrize("floats", [2**24, 1])  # all classes at once, and one after the other
def test_soft_classes_at_once(floats: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(_soft_logdets, "_FLOATS", floats)
    z, memberships = torch.randn(300, 40), torch.softmax(2 * torch.randn(300, 7), 1)
    on_gpu = [tensor.cuda().requires_grad_() for tensor in (z, memberships)]
    exact = [tensor.double().requires_grad_() for tensor in (z, memberships)]
    values = [rate_reduction(normalize(one[0], dim=1), one[1], 7) for one in (on_gpu, exact)]
    for value in values:
        value.delta.backward()
    assert values[0].delta.item() == pytest.approx(values[1].delta.item(), rel=1e-5)
    for got, wanted in zip(on_gpu, exact, strict=True):
        assert got.grad is not None
        assert wanted.grad is not None
        assert relative(got.grad.cpu(), wanted.grad) < 1e-4
