"""From the body of a request to samples: within limits while it arrives, and decoded outside of the event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
import python_multipart  # noqa: F401  # Starlette reads forms with it: without it the server must not start
import torch
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from torch import Tensor

from .._shared import UserError
from ..data import UnreadableError, picture_from_bytes
from ..runs import Run
from ._limits import Limits, RequestError, busy, in_words

MORE_COLUMNS = 1000
"""Columns that a row may have beside those of the run."""
_STATUS = {"unknown": 415, "too large": 413, "broken": 422}


class Upload(NamedTuple):
    """A file as it came. Its name is only ever shown."""

    name: str | None
    content: bytes


class Held:
    """Counts requests and the bytes of their bodies: what the server has in memory at one time is bounded."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.requests = 0
        self.bytes = 0

    @contextmanager
    def one(self, body: Body) -> Iterator[None]:
        """A request comes in, if there is room; afterwards its room is free again."""
        if self.requests >= self.limits.waiting:
            raise busy(f"{self.limits.waiting} requests are waiting")
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1
            body.give_back()

    def take(self, count: int) -> None:
        """More bytes, if there is room."""
        if self.bytes + count > self.limits.held_bytes:
            raise busy(f"{in_words(self.limits.held_bytes)} of requests are waiting")
        self.bytes += count


class Body:
    """The body of one request, while it arrives."""

    def __init__(self, request: Request, held: Held) -> None:
        self.request, self.held, self.limits = request, held, held.limits
        self.taken = 0
        self.whole = False

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Its parts. An error as soon as it is too large, also by its own word."""
        said = self.request.headers.get("content-length", "")
        if said.isdigit() and int(said) > self.limits.bytes:
            raise self._too_large()
        while not self.whole:
            chunk = await self._next()
            if self.taken + len(chunk) > self.limits.bytes:
                raise self._too_large()
            self.held.take(len(chunk))
            self.taken += len(chunk)
            yield chunk

    async def _next(self) -> bytes:
        """Not by ``request.stream``: it does not say which part is the last one, and nobody must wait for more."""
        message = await self.request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        self.whole = not message.get("more_body", False)
        return bytes(message.get("body", b""))

    def _too_large(self) -> RequestError:
        return RequestError(413, f"a request may have {in_words(self.limits.bytes)}: send less at a time")

    def give_back(self) -> None:
        """Its bytes are not in memory any more."""
        self.held.bytes -= self.taken
        self.taken = 0

    async def discard(self) -> None:
        """Throw away what still comes: a client that is busy sending does not read why it was refused."""
        if self.whole or "expect" in self.request.headers:  # who expects "100 continue" has not started to send
            return
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(self.limits.seconds):
                while not self.whole:
                    await self._next()

    async def read(self) -> bytes:
        """All of it."""
        return b"".join([chunk async for chunk in self.chunks()])


async def read_uploads(body: Body) -> list[Upload]:
    """The pictures of a form, or the one picture that the body is."""
    kind = body.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        raise RequestError(415, "this run takes pictures, not JSON: send a form with files, or a picture as the body")
    if kind == "multipart/form-data":
        return await _read_form(body)
    content = await body.read()  # of any type: curl calls everything a form
    if not content:
        raise RequestError(400, "the request has no picture: send a form with files, or a picture as the body")
    return [Upload(None, content)]


async def _read_form(body: Body) -> list[Upload]:
    most = body.limits.samples
    try:
        form = await MultiPartParser(body.request.headers, body.chunks(), max_files=most, max_fields=most).parse()
    except MultiPartException as error:
        if "Too many files" in error.message:
            raise RequestError(413, f"a request may have {most} pictures: send fewer at a time") from None
        raise RequestError(400, f"the form cannot be read: {error.message}") from None
    try:
        files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
        found = [Upload(file.filename or None, await file.read()) for file in files]
    finally:
        await form.close()
    if not found:
        raise RequestError(400, "the form has no file: with curl, write -F file=@cat.png")
    return found


def decode_upload(upload: Upload, run: Run, limits: Limits) -> Tensor | RequestError:
    """The pixels as the network takes them, or why not."""
    try:
        return picture_from_bytes(upload.content, run.form.pictures, most_pixels=limits.pixels)
    except UnreadableError as error:
        return RequestError(_STATUS[error.kind], f"{upload.name or 'the picture'}: {error}")


def prepare_rows(body: bytes, run: Run, limits: Limits) -> Tensor:
    """The rows of a table, in JSON, as the network takes them."""
    _refuse_many_values(body, run, limits)
    try:
        rows = json.loads(body)
    except (ValueError, RecursionError) as error:  # also bytes that are no text
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise RequestError(400, f"the body is no JSON: {why[:150]}") from None
    rows = [rows] if isinstance(rows, dict) else rows
    if not isinstance(rows, list) or not rows:
        raise RequestError(422, 'the body must be a list of rows such as [{"age": 40, "colour": "red"}]')
    if len(rows) > limits.samples:
        raise RequestError(413, f"a request may have {limits.samples} rows, and this one has {len(rows)}: send fewer")
    try:
        return run.prepare(_table(rows, run))
    except UserError as error:
        raise RequestError(422, str(error)) from None


def _refuse_many_values(body: bytes, run: Run, limits: Limits) -> None:
    """Before anything is parsed: three bytes of JSON, such as "{},", can become a hundred in memory."""
    columns = len(run.form.preparation.prepared) if run.form.preparation is not None else run.form.shape[0]
    most = limits.samples * (2 * columns + MORE_COLUMNS)
    if body.count(b",") + body.count(b"[") + body.count(b"{") > most:
        raise RequestError(413, f"a request may have {most:,} values: send fewer rows, or only the columns of the run")


def _table(rows: list[Any], run: Run) -> Any:
    if all(isinstance(row, dict) for row in rows):
        for row in rows:
            for name, cell in row.items():
                if isinstance(cell, list | dict):
                    raise RequestError(422, f"the column {name} has a list or an object: give a number or a text")
                if isinstance(cell, int) and abs(cell) >= 2**1000:
                    raise RequestError(422, f"the column {name} has a number that is too large: correct it")
        return rows
    try:
        table = np.array(rows, dtype=np.float64)  # null becomes NaN, which counts as missing
    except (ValueError, TypeError, OverflowError):
        table = np.empty(0)
    if table.ndim != 2:
        raise RequestError(422, "rows must all be objects, or all be lists with the same number of numbers")
    if run.form.preparation is not None:
        return table
    if not np.isfinite(table).all():
        raise RequestError(422, "the rows have gaps or infinite numbers: this run takes only finite numbers")
    return torch.from_numpy(table.astype(np.float32))
