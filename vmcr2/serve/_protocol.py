"""HTTP by h11, with patience that ends: a client that sends its headers slowly, or never, is cut off."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_BYTES = 2**16
"""Of the request line and all headers together. More is 400."""


def patient_protocol(seconds: float) -> type[asyncio.Protocol]:
    """A protocol class for uvicorn whose clients have so many seconds for the headers of a request."""

    class Patient(H11Protocol):
        waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._expect()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _expect(self) -> None:
            """Wait for whole headers, from the first byte on: more bytes give no more time."""
            if self.conn.their_state is not h11.IDLE:
                self._forget()
            elif self.waiting is None:
                self.waiting = self.loop.call_later(seconds, self._give_up)

        def _forget(self) -> None:
            if self.waiting is not None:
                self.waiting.cancel()
                self.waiting = None

        def _give_up(self) -> None:
            self.waiting = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                self.transport.close()

    return Patient
