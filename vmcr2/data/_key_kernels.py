"""What the kernels of crops share: a sample's words of a hash, as in ``_keys``, and numbers from them."""

# mypy: ignore-errors
# Triton's language is typed by its compiler: annotations would be read as part of it

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def mix(x):
    """splitmix64's finaliser on unsigned words."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def below(word, bound):
    """Uniform in 0..bound−1."""
    return (((word >> 33) * bound) >> 31).to(tl.int32)


@triton.jit
def key_of(numbers, draw, seed_word, sample, golden):
    """The key of a sample in this epoch: its n-th word is mix(key + n·golden)."""
    stream = mix(tl.load(draw).to(tl.uint64) * golden + seed_word.to(tl.uint64))
    return mix(tl.load(numbers + sample).to(tl.uint64) * golden + stream)
