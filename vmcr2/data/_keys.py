"""Random decisions as a function of (seed, draw, sample) alone: integers hashed on the device.

A generator's numbers depend on how many were drawn before. So they depend on how an epoch is cut into batches, and on
which process holds which part. A hash of the sample's number does not. It needs no state in a checkpoint and no
synchronisation in a captured graph. The hash is splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
generators, OOPSLA 2014) in int64, whose products wrap around.
"""

from __future__ import annotations

import torch
from torch import Tensor

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def _signed(word: int) -> int:
    """The int64 with the same 64 bits."""
    word &= _WORD
    return word - (1 << 64) if word >> 63 else word


def _shifted(x: Tensor, bits: int) -> Tensor:
    """A logical shift to the right; int64's own fills with the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix(x: Tensor) -> Tensor:
    """splitmix64's finaliser, a bijection of 64 bits.

    >>> mix(torch.tensor(_signed(0x9E3779B97F4A7C15))).item() == _signed(0xE220A8397B1DCDAF)
    True
    """
    x = (x ^ _shifted(x, 30)) * _signed(_FIRST)
    x = (x ^ _shifted(x, 27)) * _signed(_SECOND)
    return x ^ _shifted(x, 31)


def _mix_on_host(word: int) -> int:
    word &= _WORD
    word = ((word ^ (word >> 30)) * _FIRST) & _WORD
    word = ((word ^ (word >> 27)) * _SECOND) & _WORD
    return word ^ (word >> 31)


def seed_word(seed: int) -> int:
    """The seed's part of every key, as a signed word, which is what a launch of a kernel takes."""
    return _signed(_mix_on_host(seed + _GOLDEN))


def sample_keys(index: Tensor, draw: Tensor, seed: int) -> Tensor:
    """(n,) keys for the samples ``index`` in the epoch ``draw`` (0-dim)."""
    stream = mix(draw.to(torch.int64) * _signed(_GOLDEN) + seed_word(seed))
    return mix(index.to(torch.int64) * _signed(_GOLDEN) + stream)


def words(keys: Tensor, first: int, count: int) -> Tensor:
    """(n, count) independent 64-bit words, the key's ``first`` to ``first + count``."""
    steps = torch.arange(first + 1, first + count + 1, device=keys.device) * _signed(_GOLDEN)
    return mix(keys[:, None] + steps)


def below(word: Tensor, bound: int | Tensor) -> Tensor:
    """Uniform in 0..bound−1, for bounds up to 2³¹: the word's top 31 bits scaled, biased by 2⁻³¹ × bound at most."""
    return (_shifted(word, 33) * bound) >> 31


def unit(word: Tensor) -> Tensor:
    """Uniform in [0, 1), float64: 53 bits."""
    return _shifted(word, 11).to(torch.float64) * 2.0**-53
