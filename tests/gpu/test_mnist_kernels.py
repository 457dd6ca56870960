"""The convolutional layers of MNIST's network by Triton against torch's own: values, gradients, dropout."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from digits_trainer import feed
from gpu_training import engine_of, trainer
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, max_pool2d, relu

from vmcr2.models import MNISTNet, _fused_mnist as fused
from vmcr2.training import batch_figures
from vmcr2.training._bfloat16_weights import BFloat16Weights
from vmcr2.training._engine import WARM_UP

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 6e-3}
DTYPES = list(TOLERANCE)
Through = Callable[[MNISTNet, Tensor, Tensor], Tensor]
"""Forward and backward; returns the features."""


def relative(a: Tensor | None, b: Tensor | None) -> float:
    assert a is not None
    assert b is not None
    return float(((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-12)).detach())


def leaf(*shape: int, dtype: torch.dtype) -> Tensor:
    made = torch.randn(*shape, device=DEVICE).to(dtype)
    return made.contiguous(memory_format=torch.channels_last).requires_grad_() if len(shape) == 4 else made


def exact(x: Tensor) -> Tensor:
    return x.detach().double().requires_grad_()


def network(dim: int = 32, *, dropout: bool = False) -> MNISTNet:
    torch.manual_seed(1)
    made = MNISTNet(dim).to(DEVICE).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for part in made.modules():
        if isinstance(part, nn.Dropout) and not dropout:
            part.p = 0.0
    assert isinstance(made, MNISTNet)
    return made


@pytest.mark.parametrize("n", [1, 37, 1000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_convolution_with_relu(n: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.rand(n, 1, 32, 32, device=DEVICE).to(dtype)
    weight, bias = leaf(32, 1, 3, 3, dtype=dtype), leaf(32, dtype=dtype).requires_grad_()
    weight64, bias64 = exact(weight), exact(bias)
    y = fused.Convolve.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    wanted = relu(conv2d(x.double(), weight64, bias64))
    assert y.dtype == dtype
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert relative(y, wanted) < TOLERANCE[dtype]
    upstream = torch.randn(y.shape, device=DEVICE).to(dtype)
    y.backward(upstream)
    wanted.backward(upstream.double())
    assert relative(weight.grad, weight64.grad) < 10 * TOLERANCE[dtype]  # sums of 900,000 terms that cancel
    assert relative(bias.grad, bias64.grad) < 10 * TOLERANCE[dtype]


@pytest.mark.parametrize("n", [1, 37, 1000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bias_relu_and_pool_without_dropout(n: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, bias = leaf(n, 64, 28, 28, dtype=dtype), leaf(64, dtype=dtype).requires_grad_()
    x64, bias64 = exact(x), exact(bias)
    before = torch.get_rng_state() if DEVICE == "cpu" else torch.cuda.get_rng_state()
    y = fused.Pool.apply(x, bias, 0.0)  # type: ignore[no-untyped-call]
    assert torch.equal(before, torch.get_rng_state() if DEVICE == "cpu" else torch.cuda.get_rng_state())
    wanted = max_pool2d(relu(x64 + bias64[:, None, None]), 2)
    assert y.is_contiguous()
    assert relative(y, wanted) < TOLERANCE[dtype]
    upstream = torch.randn(y.shape, device=DEVICE).to(dtype)
    y.backward(upstream)
    wanted.backward(upstream.double())
    assert relative(x.grad, x64.grad) < TOLERANCE[dtype]
    assert relative(bias.grad, bias64.grad) < 10 * TOLERANCE[dtype]


@pytest.mark.parametrize("p", [0.25, 0.6])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_keeps_its_share_and_scales_it(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    n = 100
    x, bias = leaf(n, 64, 28, 28, dtype=dtype), torch.full((64,), 10.0, device=DEVICE).to(dtype)  # ReLU shuts nothing
    y = fused.Pool.apply(x, bias, p)  # type: ignore[no-untyped-call]
    whole = fused.Pool.apply(x, bias, 0.0)  # type: ignore[no-untyped-call]
    kept = y != 0
    assert relative(y, whole * kept / (1 - p)) < TOLERANCE[dtype]
    y.backward(torch.ones_like(y))
    assert x.grad is not None
    assert torch.equal(x.grad != 0, (x.grad != 0) & kept.repeat_interleave(2, 2).repeat_interleave(2, 3))
    arrived = 4 * avg_pool2d(x.grad.float(), 2)  # one of four pixels has it all
    assert relative(arrived, kept / (1 - p)) < TOLERANCE[dtype]
    share = kept.double()
    deviation = (p * (1 - p)) ** 0.5
    for over in ((0, 1, 2, 3), (0, 2, 3), (0, 1), (1, 2, 3)):  # all, per channel, per place, per image
        means = share.mean(over)
        limit = 6 * deviation / (share.numel() / means.numel()) ** 0.5
        assert float((means - (1 - p)).abs().max()) < limit, over
    for axis in range(4):  # neighbours are independent
        pairs = share * share.roll(1, axis)
        assert float(pairs.mean()) == pytest.approx((1 - p) ** 2, abs=6 * deviation / share.numel() ** 0.5), axis


def test_a_seed_decides_the_mask() -> None:
    x, bias = leaf(3, 64, 28, 28, dtype=torch.bfloat16), torch.full((64,), 10.0, device=DEVICE).bfloat16()
    masks = []
    for seed in (4, 4, 5):
        torch.manual_seed(seed)
        masks += [fused.Pool.apply(x, bias, 0.25) != 0 for _ in range(2)]  # type: ignore[no-untyped-call]
    first, second, again, second_again, other, _ = masks
    assert torch.equal(first, again)
    assert torch.equal(second, second_again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)


def test_replays_of_a_graph_draw_new_masks() -> None:
    x, bias = leaf(3, 64, 28, 28, dtype=torch.bfloat16), torch.full((64,), 10.0, device=DEVICE).bfloat16()

    def forward() -> Tensor:
        y: Tensor = fused.Pool.apply(x.detach(), bias, 0.25)  # type: ignore[no-untyped-call]
        return y

    forward()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = forward()
    masks = []
    for seed in (4, None, 4):
        if seed is not None:
            torch.manual_seed(seed)
        graph.replay()
        masks.append(y != 0)
    assert not torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], masks[2])


def test_gradients_are_the_same_bits_every_time() -> None:
    torch.manual_seed(0)
    x = torch.rand(200, 1, 32, 32, device=DEVICE).bfloat16()
    weight, bias = leaf(32, 1, 3, 3, dtype=torch.bfloat16), leaf(32, dtype=torch.bfloat16).requires_grad_()
    late, late_bias = leaf(200, 64, 28, 28, dtype=torch.bfloat16), leaf(64, dtype=torch.bfloat16).requires_grad_()
    found = []
    for _ in range(3):
        torch.manual_seed(2)
        y = fused.Convolve.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        pooled = fused.Pool.apply(late, late_bias, 0.25)  # type: ignore[no-untyped-call]
        total = y.float().square().sum() + pooled.float().square().sum()
        found.append(torch.autograd.grad(total, (weight, bias, late, late_bias)))
    for again in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], again, strict=True))


def counted(patch: pytest.MonkeyPatch) -> list[int]:
    """Has an entry for every call of the kernels."""
    called: list[int] = []
    real = fused.Pool.forward

    def forward(*given: Any) -> Tensor:
        called.append(1)
        return real(*given)

    patch.setattr(fused.Pool, "forward", staticmethod(forward))
    return called


def plainly(net: MNISTNet, images: Tensor, weight: Tensor) -> Tensor:
    z: Tensor = net(images)
    (z * weight).sum().backward()
    return z.detach()


def under_autocast(net: MNISTNet, images: Tensor, weight: Tensor) -> Tensor:
    with torch.autocast(DEVICE, torch.bfloat16):
        z: Tensor = net(images)
    (z * weight).sum().backward()
    return z.detach()


def with_copies(net: MNISTNet, images: Tensor, weight: Tensor) -> Tensor:
    """As the engine does."""
    half = BFloat16Weights(net)
    with torch.autocast(DEVICE, torch.bfloat16):
        z = half(images.bfloat16())
    (z * weight).sum().backward()
    half.bring_back()
    return z.detach()


@pytest.mark.parametrize("through", [plainly, under_autocast, with_copies])
def test_a_network_is_the_same_with_and_without(through: Through, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = network()
    torchs, wanted = copy.deepcopy(ours), copy.deepcopy(ours).double()
    images, weight = torch.rand(64, 1, 32, 32, device=DEVICE), torch.randn(64, 32, device=DEVICE)
    called = counted(monkeypatch)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    z = through(ours, images, weight)
    assert called == [1]
    monkeypatch.setattr(fused, "fits_triton", lambda x: False)
    z_torch = through(torchs, images, weight)
    z64 = plainly(wanted, images.double(), weight.double())
    assert called == [1]
    close = 1e-5 if through is plainly else 1e-2
    assert relative(z, z64) < 1.5 * relative(z_torch, z64) + close
    for a, b, c in zip(ours.parameters(), torchs.parameters(), wanted.parameters(), strict=True):
        assert relative(a.grad, c.grad) < 1.5 * relative(b.grad, c.grad) + 2 * close
        assert relative(a.grad, c.grad) < 20 * close


def used(net: MNISTNet, images: Tensor, monkeypatch: pytest.MonkeyPatch) -> bool:
    with monkeypatch.context() as patch:
        called = counted(patch)
        net(images)
    return bool(called)


def test_torch_s_layers_compute_where_the_kernels_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.rand(2, 1, 32, 32, device=DEVICE)
    assert used(network(), images, monkeypatch)
    assert not used(network().eval(), images, monkeypatch)
    assert not used(network().double(), images.double(), monkeypatch)
    assert not used(network(), images[:0], monkeypatch)
    net, wanting = network(), images.clone().requires_grad_()
    assert not used(net, wanting, monkeypatch)
    net(wanting).sum().backward()
    assert wanting.grad is not None


def test_a_dropout_layer_in_evaluation_mode_drops_nothing() -> None:
    net = network(dropout=True)
    images = torch.rand(2, 1, 32, 32, device=DEVICE)
    first: Tensor = fused.convolutional(net.layers, images)
    net.layers[5].eval()
    second, third = fused.convolutional(net.layers, images), fused.convolutional(net.layers, images)
    assert torch.equal(second, third)
    assert 0 < int((first != second).sum()) < second.numel()


def test_what_is_not_a_number_stays_so() -> None:
    images = torch.rand(3, 1, 32, 32, device=DEVICE)
    images[1, 0, 16, 16] = torch.nan
    z = network()(images)
    assert torch.isfinite(z).all(1).tolist() == [True, False, True]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.usefixtures("deterministic")
def test_captured_and_eager_steps_are_the_same_with_dropout(precision: str) -> None:
    losses = []
    for engine in ("eager", "captured"):
        torch.manual_seed(3)
        made = trainer(
            "ce",
            model="mnist-cnn",
            image_size=32,
            batch_size=100,
            augmentation="none",
            precision=precision,
            engine=engine,
        )
        torch.manual_seed(3)
        runs = engine_of(made, say=pytest.fail)
        own = []
        for draw in range(WARM_UP + 10):
            feed(made, draw)
            made.step.rate.fill_(0.05)
            runs()
            own.append(batch_figures(made.step)["loss"])
        assert runs.captured == (engine == "captured")
        losses.append(own)
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert len({round(value, 6) for value in losses[0]}) > 10
