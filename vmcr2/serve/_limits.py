"""What a server takes, so that no request can use up its memory or its time; and the error that says so."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """All of them are for one request, unless they say otherwise."""

    bytes: int = 32 * MIB
    samples: int = 100
    """pictures or rows"""
    pixels: int = 25_000_000
    """of one picture: a phone's photographs pass, and decoding takes at most some 400 MB"""
    neighbors: int = 50
    seconds: float = 30.0
    """for the request to arrive, and again for its answer"""
    waiting: int = 256
    """requests at the same time; the next one is told to come again"""
    batch: int = 64
    """samples that go through the network together; 1 switches batching off"""

    @property
    def held_bytes(self) -> int:
        """Of all requests together, until they are answered."""
        return max(8 * self.bytes, 256 * MIB)


class RequestError(Exception):
    """A request that gets no answer but a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def busy(why: str) -> RequestError:
    """The server has too much to do."""
    return RequestError(503, f"the server is busy, {why}: try again in a second")


def in_words(count: int) -> str:
    """Bytes for people.

    >>> in_words(32 * 2**20), in_words(1000)
    ('32 MiB', '1000 bytes')
    """
    return f"{count / MIB:g} MiB" if count >= MIB else f"{count} bytes"
