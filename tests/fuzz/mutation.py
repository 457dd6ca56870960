"""Changes inputs at random, for the quick profile: reproducible, and without a look at what the reader does."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

_NUMBERS = (0, 1, 7, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
_WORDS = (
    b"NaN",
    b"-1",
    b"1e999",
    b"null",
    b"{}",
    b"[]",
    b"\x00",
    b"\xff\xfe",
    b"..",
    b"/",
    b"\n",
    b",",
    b'"',
    b"-" * 40,
)


def mutants(seeds: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """As many changed inputs, each one to four changes away from one of the seeds."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 4)):
            _change(data, rng, seeds)
        yield bytes(data)


def _change(data: bytearray, rng: random.Random, seeds: Sequence[bytes]) -> None:
    # most headers are at the beginning
    end = len(data) if rng.random() < 0.5 else min(len(data), 300)
    at = rng.randrange(end) if end else 0
    kind = rng.randrange(8)
    if kind == 0 and data:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1 and data:
        data[at] = rng.randrange(256)
    elif kind == 2:
        del data[at : at + rng.choice((1, 4, 16, 500))]
    elif kind == 3:
        data[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 16))))
    elif kind == 4:
        number = struct.pack(rng.choice("<>") + "Q", rng.choice(_NUMBERS))
        data[at : at + 4] = number[:4] if rng.random() < 0.5 else number[-4:]
    elif kind == 5:
        data[at : at + rng.choice((0, 1, 4))] = rng.choice(_WORDS)
    elif kind == 6:
        data[at:at] = data[at : at + rng.choice((1, 16, 200))] * rng.choice((1, 2, 50))
    else:
        other = rng.choice(seeds)
        data[at:] = other[rng.randrange(len(other) or 1) :]
