"""What hypothesis draws: batches of features with labels, in every form that the public functions take, and worse.

The domain that the docstrings state is drawn on purpose up to its ends. Some draws lie outside: they must be refused
with a ``ValueError``, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from hypothesis import seed, settings, strategies as st
from seeds import SEED
from torch import Tensor

T = TypeVar("T", bound=Callable[..., Any])

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SHAPES = ("normal", "zeros", "identical", "axes", "line", "mixed lengths", "one long row", "signs", "sparse")
BALANCES = ("even", "skewed", "one class", "absent", "single")
# in the stated range, its ends, and outside of it
NUMBERS = st.one_of(
    st.sampled_from([0.5, 1e-4, 1e-12, 1e12, 20.0, 1.0]),
    st.floats(-12, 12).map(lambda exponent: min(max(10.0**exponent, 1e-12), 1e12)),
)
ODD_NUMBERS = st.one_of(NUMBERS, st.sampled_from([0.0, -1.0, 1e-300, 1e300, float("inf"), float("nan"), 5e-324]))


def driven(*, slow: bool = False) -> Callable[[T], T]:
    """As many examples as the profile has; a slow test has a fifth of the quick ones. Another seed draws others."""

    def decorate(test: T) -> T:
        count = settings.default.max_examples
        count = count // 5 if slow and count < 100 else count
        return seed(SEED)(settings(max_examples=count)(test))  # type: ignore[return-value]

    return decorate


@dataclass(frozen=True)
class Batch:
    """Features and labels, and whether all of them lie in the stated domain."""

    z: Tensor
    labels: Tensor
    num_classes: int
    plain: bool
    """Unit rows in float32 or float64: nothing may be refused."""

    @property
    def dim(self) -> int:
        return self.z.shape[1]


@st.composite
def batches(draw: st.DrawFn, *, soft: bool = True, dtypes: Iterable[torch.dtype] = DTYPES) -> Batch:
    m, d, k = draw(st.integers(1, 40)), draw(st.integers(1, 24)), draw(st.integers(1, 8))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(tuple(dtypes)))
    size = draw(st.sampled_from([1.0, 1.0, 1.0, 1e-40, 1e-20, 1e-6, 100.0, 6e4, 1e6, 4e9, 1e15]))
    z = _features(shape, m, d, generator)
    plain = size == 1.0 and dtype in (torch.float32, torch.float64)
    z = size * torch.nn.functional.normalize(z, dim=1)
    z = z.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)
    spoil = draw(st.sampled_from([None] * 12 + [torch.nan, torch.inf, 3e38]))
    if spoil is not None:
        z[draw(st.integers(0, m - 1)), draw(st.integers(0, d - 1))] = spoil
        plain = False
    labels = _labels(draw(st.sampled_from(BALANCES)), m, k, generator)
    if soft and draw(st.booleans()):
        return Batch(z, _memberships(labels, k, draw(st.sampled_from([0.0, 1e-30, 0.3, 1.0])), generator), k, plain)
    return Batch(z, labels.to(draw(st.sampled_from([torch.int64, torch.int32, torch.uint8, torch.int16]))), k, plain)


def _features(shape: str, m: int, d: int, generator: torch.Generator) -> Tensor:
    z = torch.randn(m, d, generator=generator, dtype=torch.float64)
    makers: dict[str, Callable[[], Tensor]] = {
        "normal": lambda: z,
        "zeros": lambda: torch.zeros_like(z),
        "identical": lambda: z[:1].expand(m, d).clone(),
        "axes": lambda: torch.eye(d, dtype=z.dtype)[torch.randint(d, (m,), generator=generator)],
        "line": lambda: z[:, :1] * z[:1],
        "mixed lengths": lambda: z * 10.0 ** torch.randint(-6, 1, (m, 1), generator=generator),
        "one long row": lambda: torch.where(torch.arange(m).unsqueeze(1) == 0, z, 0.0),
        "signs": lambda: z.sign(),
        "sparse": lambda: z * (torch.rand(m, d, generator=generator) < 0.2),
    }
    return makers[shape]()


def _labels(balance: str, m: int, k: int, generator: torch.Generator) -> Tensor:
    index = torch.arange(m)
    found = {
        "even": index % k,
        "skewed": ((index / m) ** 3 * k).long(),
        "one class": torch.full((m,), k - 1),
        "absent": index % max(1, k - 1),
        "single": torch.where(index == 0, k - 1, index % max(1, k - 1)),
    }[balance]
    return found[torch.randperm(m, generator=generator)]


def _memberships(labels: Tensor, k: int, share: float, generator: torch.Generator) -> Tensor:
    hard = torch.nn.functional.one_hot(labels, k).double()
    noise = torch.rand(len(labels), k, generator=generator, dtype=torch.float64) + 1e-3
    return ((1 - share) * hard + share * noise / noise.sum(1, keepdim=True)).float()


def attempt(call: Callable[[], Any], *, must_work: bool = False) -> Any:
    """The result; None if it was refused with a ``ValueError`` of one sentence. Any other error fails the test."""
    why = ""
    try:
        return call()
    except ValueError as error:
        why = str(error)
    assert not must_work, f"refused in the stated domain: {why}"
    assert len(why) > 20
    return None


def assert_finite(*found: Any) -> None:
    """No NaN and no inf in tensors, at any depth."""
    for one in found:
        if isinstance(one, Tensor):
            assert bool(torch.isfinite(one.double()).all()), one
        elif isinstance(one, float):
            assert math.isfinite(one), one
        elif isinstance(one, tuple | list):
            assert_finite(*one)


def gradient_of(value: Tensor, z: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(value, z, allow_unused=True)
    return torch.zeros_like(z) if gradient is None else in_range(gradient)


def in_range(gradient: Tensor) -> Tensor:
    """What is above 65504 is inf in float16, as the docstrings say; a NaN it must not be."""
    return torch.where(torch.isinf(gradient), 0.0, gradient) if gradient.dtype == torch.float16 else gradient
