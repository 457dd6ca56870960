"""BatchNorm with ReLU, residual and pool in one operation against torch's own parts, forward and backward."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from vmcr2.models import _fused_norm as fused, build

pytestmark = pytest.mark.gpu


def norms(channels: int, *, images: bool = True) -> tuple[nn.BatchNorm2d, nn.BatchNorm2d]:
    torch.manual_seed(1)
    made = nn.BatchNorm2d(channels) if images else nn.BatchNorm1d(channels)
    ours = cast(nn.BatchNorm2d, made.cuda())
    nn.init.normal_(ours.weight)
    nn.init.normal_(ours.bias)
    return ours, copy.deepcopy(ours).double()


def random(*shape: int) -> Tensor:
    layout = torch.channels_last if len(shape) == 4 else torch.contiguous_format
    return (3 + 2 * torch.randn(*shape, device="cuda")).contiguous(memory_format=layout)


def relative(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-12))


SHAPES = [
    (64, 64, 16, 16),
    (2000, 512, 1, 1),  # the largest that takes one kernel has 2048 rows
    (2049, 64, 1, 1),
    (7, 256, 2, 2),
    (33, 128, 4, 6),
    (2000, 64, 16, 16),
    (2000, 512),
]
Outputs = tuple[Tensor, ...]
"""The same tensor twice, where it has two readers."""


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x as the type has it; the gradient passes."""
    return x + (x.to(dtype).double() - x).detach()


Norm = nn.BatchNorm2d
OURS: dict[str, Callable[[Norm, Tensor, Tensor], Outputs]] = {
    "relu": lambda norm, x, r: (fused.norm_relu(norm, x),),
    "residual": lambda norm, x, r: (fused.norm_relu(norm, x, r),),
    "alone": lambda norm, x, r: (fused.norm_alone(norm, x),),
    "pool": lambda norm, x, r: (fused.norm_relu_pool(norm, x),),
    "twice": lambda norm, x, r: fused.norm_relu_twice(norm, x),
    "residual twice": lambda norm, x, r: fused.norm_relu_twice(norm, x, r),
    "past the norm": lambda norm, x, r: fused.add_norm_relu(norm, x),
    "sum": fused.add_norm_relu,
}
EXACT: dict[str, Callable[[Norm, Tensor, Tensor], Outputs]] = {
    "relu": lambda norm, x, r: (relu(norm(x)),),
    "residual": lambda norm, x, r: (relu(norm(x) + r),),
    "alone": lambda norm, x, r: (norm(x),),
    "pool": lambda norm, x, r: (max_pool2d(relu(norm(x)), 3, 2, 1),),
    "twice": lambda norm, x, r: (relu(norm(x)),) * 2,
    "residual twice": lambda norm, x, r: (relu(norm(x) + r),) * 2,
    "past the norm": lambda norm, x, r: (x * 1, *(relu(norm(x)),) * 2),
}


def exact_outputs(kind: str, norm: Norm, x: Tensor, r: Tensor, dtype: torch.dtype) -> Outputs:
    """By torch's parts, in float64. Of a sum, as the type has it."""
    if kind == "sum":
        return EXACT["past the norm"](norm, rounded(x + r, dtype), r)
    return EXACT[kind](norm, x, r)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_batch_norm_and_what_follows(shape: tuple[int, ...], kind: str, dtype: torch.dtype) -> None:
    if kind == "pool" and (len(shape) == 2 or shape[2] % 2):
        pytest.skip("odd images are pooled by torch")
    torch.manual_seed(0)
    ours, exact = norms(shape[1], images=len(shape) == 4)
    x, r = random(*shape).to(dtype).requires_grad_(), random(*shape).to(dtype).requires_grad_()
    x64, r64 = (t.detach().double().requires_grad_() for t in (x, r))
    outputs, wanted = OURS[kind](ours, x, r), exact_outputs(kind, exact, x64, r64, dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 6e-3
    for y, reference in zip(outputs, wanted, strict=True):
        assert "FusedNorm" in str(y.grad_fn)
        assert y.stride() == x.stride() or kind == "pool"
        assert relative(y.detach(), reference.detach()) < tolerance
    upstream = [torch.randn_like(y) for y in outputs]
    torch.autograd.backward(outputs, upstream)
    torch.autograd.backward(wanted, [one.double() for one in upstream])
    pairs = [(x.grad, x64.grad), (ours.weight.grad, exact.weight.grad), (ours.bias.grad, exact.bias.grad)]
    pairs += [(r.grad, r64.grad)] if "residual" in kind or kind == "sum" else []
    for got, reference_gradient in pairs:
        assert got is not None
        assert reference_gradient is not None
        assert relative(got, reference_gradient) < 50 * tolerance  # sums of half a million terms that cancel
    for name in ("running_mean", "running_var"):
        assert relative(getattr(ours, name), getattr(exact, name)) < 1e-5
    assert ours.num_batches_tracked == 1


@pytest.mark.parametrize("used", [0, 1, 2])
@pytest.mark.parametrize("rows", [100, 3000])
def test_outputs_that_nobody_reads_have_no_gradient(used: int, rows: int) -> None:
    """Of x, relu(norm(x)) and the same again, only one is used."""
    torch.manual_seed(0)
    ours, exact = norms(64, images=False)
    x, r = random(rows, 64).requires_grad_(), random(rows, 64).requires_grad_()
    x64, r64 = (t.detach().double().requires_grad_() for t in (x, r))
    outputs, wanted = OURS["sum"](ours, x, r), exact_outputs("sum", exact, x64, r64, x.dtype)
    upstream = torch.randn_like(x)
    outputs[used].backward(upstream)
    wanted[used].backward(upstream.double())
    assert x.grad is not None
    assert x64.grad is not None
    assert relative(x.grad, x64.grad) < 1e-3


def test_the_same_input_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    x, r, upstream = (random(500, 128, 8, 8).bfloat16() for _ in range(3))
    found = []
    for _ in range(10):
        norm = norms(128)[0]
        a, b = x.clone().requires_grad_(), r.clone().requires_grad_()
        total, y, again = fused.add_norm_relu(norm, a, b)
        torch.autograd.backward((total, y, again), (upstream, upstream, upstream))
        found.append([y, a.grad, norm.weight.grad, norm.bias.grad, norm.running_mean, norm.running_var])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            assert one is not None
            assert other is not None
            assert torch.equal(one, other)


def step(norm: nn.BatchNorm2d, x: Tensor, upstream: Tensor) -> list[Tensor]:
    """Output and gradients of a training step on x, from the norm's running statistics as they are."""
    leaf = x.detach().requires_grad_()
    norm.weight.grad = norm.bias.grad = None
    y = fused.norm_relu(norm, leaf)
    y.backward(upstream)
    assert leaf.grad is not None
    assert norm.weight.grad is not None
    assert norm.bias.grad is not None
    return [y.detach(), leaf.grad, norm.weight.grad, norm.bias.grad]


@pytest.mark.parametrize("warm", [True, False])
def test_a_captured_norm_counts_anew_at_every_replay(warm: bool) -> None:
    """Without a warm-up, the counters are made while the graph is captured, and then there are others outside of it."""
    torch.manual_seed(0)
    norm, _ = norms(64)
    twin = copy.deepcopy(norm)
    x, upstream = random(100, 64, 8, 8), random(100, 64, 8, 8)
    step(twin, x, upstream)  # compiles
    twin.load_state_dict(norm.state_dict())
    if warm:
        step(norm, x, upstream)
        norm.load_state_dict(twin.state_dict())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(norm, x, upstream)
    for seed in range(5):
        torch.manual_seed(seed)
        x.copy_(random(100, 64, 8, 8))
        graph.replay()
        expected = step(twin, x.clone(), upstream)
        for one, other in zip(captured, expected, strict=True):
            assert torch.equal(one, other)
        for one, other in zip(norm.buffers(), twin.buffers(), strict=True):
            assert torch.equal(one, other)
    step(norm, x, upstream)  # outside of the graph, between two replays
    step(twin, x, upstream)
    graph.replay()
    for one, other in zip(captured, step(twin, x, upstream), strict=True):
        assert torch.equal(one, other)


def test_norms_on_two_streams_do_not_mix_their_counts() -> None:
    torch.manual_seed(0)
    cases = [(norms(64)[0], random(1000, 64, 8, 8), random(1000, 64, 8, 8)) for _ in range(2)]
    expected = [step(*case) for case in cases]
    streams = [torch.cuda.Stream() for _ in cases]
    torch.cuda.synchronize()
    for _ in range(50):
        found = []
        for stream, case in zip(streams, cases, strict=True):
            with torch.cuda.stream(stream):
                found.append(step(*case))
        torch.cuda.synchronize()
        for ours, theirs in zip(found, expected, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                assert torch.equal(one, other)


def test_a_norm_over_processes_is_left_to_torch() -> None:
    norm = nn.SyncBatchNorm(64).cuda()
    assert not fused.fusable(norm, random(10, 64, 4, 4))  # type: ignore[arg-type]


def test_a_single_row_is_refused_as_torch_refuses_it() -> None:
    norm, _ = norms(64)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        fused.norm_relu(norm, random(1, 64, 1, 1))


@pytest.mark.parametrize("name", ["resnet18", "preact18"])
def test_a_network_is_the_same_with_and_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = build(name, dim=32, input_shape=(3, 32, 32)).cuda()
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    other = copy.deepcopy(network)
    images = torch.rand(16, 3, 32, 32, device="cuda")
    weight = torch.randn(16, 32, device="cuda")
    torch.backends.cudnn.allow_tf32, before = False, torch.backends.cudnn.allow_tf32
    z = network(images)
    (z * weight).sum().backward()
    monkeypatch.setattr(fused, "fits_triton", lambda x: False)
    plain = other(images)
    (plain * weight).sum().backward()
    torch.backends.cudnn.allow_tf32 = before
    assert relative(z, plain) < 1e-4
    for a, b in zip(network.parameters(), other.parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        assert relative(a.grad, b.grad) < 5e-2  # a ReLU or a pool may decide the other way
    for key, value in network.state_dict().items():
        assert torch.allclose(value, other.state_dict()[key], rtol=1e-3, atol=1e-4), key
