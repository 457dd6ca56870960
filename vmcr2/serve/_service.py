"""What happens to a request for predictions, from its body to its answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from starlette.requests import Request
from torch import Tensor

from .._version import __version__
from ..runs import Run
from ._answers import Writer
from ._batching import Batcher
from ._limits import Limits, RequestError, busy
from ._metrics import Metrics
from ._reading import Body, Held, Upload, decode_upload, prepare_rows, read_uploads

T = TypeVar("T")
_NAMED_CLASSES = 1000
"""At most, in ``/health``: clients ask for it often."""


class Reply(NamedTuple):
    """A status and what goes into the JSON."""

    status: int
    content: dict[str, Any]


class Service:
    """A run with everything that answers requests."""

    def __init__(self, run: Run, limits: Limits, refuse: float | None) -> None:
        self.run, self.limits = run, limits
        self.writer = Writer(run, refuse)
        self.metrics = Metrics()
        self.held = Held(limits)
        self.batcher = Batcher(run, limits.batch)
        # few: each may hold a large picture, and Pillow lets other threads run while it decodes
        self._threads = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "vmcr2-decoder")

    async def start(self) -> None:
        """One pass through the network, so that the first request need not wait for what is set up then."""
        dtype = torch.uint8 if self.run.form.is_pictures else torch.float32
        await self.batcher.find(torch.zeros(1, *self.run.form.shape, dtype=dtype), min(1, self.writer.kept))
        self.batcher.batches = 0

    def close(self) -> None:
        """End all threads."""
        self.batcher.close()
        self._threads.shutdown(cancel_futures=True)

    async def predict(self, body: Body, refuse: float | None, neighbors: int) -> Reply:
        """The answer to a request."""
        with self.held.one(body):
            threshold = self.writer.threshold(refuse)
            self.writer.check_neighbors(neighbors)
            given = await self._arrived(self._read(body))
            try:
                async with asyncio.timeout(self.limits.seconds):
                    return await self._answered(given, threshold, neighbors)
            except TimeoutError:
                raise busy(f"and had no answer within {self.limits.seconds:g} s") from None

    async def _read(self, body: Body) -> list[Upload] | bytes:
        if self.run.form.is_pictures:
            return await read_uploads(body)
        kind = body.request.headers.get("content-type", "").lower()
        if kind.startswith(("multipart/", "image/")):
            raise RequestError(415, "this run takes rows of a table, not pictures: send a list of rows in JSON")
        return await body.read()

    async def _arrived(self, reading: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await reading
        except TimeoutError:
            raise RequestError(
                408, f"the request did not arrive within {self.limits.seconds:g} s: send less, or faster"
            ) from None

    async def _answered(self, given: list[Upload] | bytes, threshold: float | None, neighbors: int) -> Reply:
        names, inputs = await self._decoded(given)
        good = [one for one in inputs if isinstance(one, Tensor)]
        bad = [one for one in inputs if isinstance(one, RequestError)]
        self.metrics.unreadable += len(bad)
        if not good:
            more = f" (and {len(bad) - 1} more that cannot be read)" if len(bad) > 1 else ""
            raise RequestError(bad[0].status, f"{bad[0]}{more}")
        found = await self.batcher.find(torch.stack(good), neighbors)
        write = partial(self.writer.answers, found, threshold)
        # a thread of its own only where thumbnails are encoded
        answers = await self._in_thread(write) if neighbors else write()
        return self._reply(names, inputs, answers)

    async def _decoded(self, given: list[Upload] | bytes) -> tuple[list[str | None], list[Tensor | RequestError]]:
        """Names and samples."""
        if isinstance(given, bytes):
            rows = await self._in_thread(prepare_rows, given, self.run, self.limits)
            return [None] * len(rows), list(rows)
        decoding = (self._in_thread(decode_upload, upload, self.run, self.limits) for upload in given)
        return [upload.name for upload in given], await asyncio.gather(*decoding)

    def _reply(
        self, names: list[str | None], inputs: list[Tensor | RequestError], answers: list[dict[str, Any]]
    ) -> Reply:
        """Answers and reasons in the order of the samples."""
        self.metrics.samples += len(answers)
        self.metrics.refused += sum(bool(answer["refused"]) for answer in answers)
        left = iter(answers)
        told = []
        for name, one in zip(names, inputs, strict=True):
            own = next(left) if isinstance(one, Tensor) else {"error": str(one), "status": one.status}
            told.append(({"file": name} if self.run.form.is_pictures else {}) | own)
        content: dict[str, Any] = {"run": self.run.folder.name, "answers": told}
        if self.writer.notes:
            content["notes"] = self.writer.notes
        if len(answers) == len(told):
            return Reply(200, content)
        count = len(told) - len(answers)
        return Reply(207, {"error": f"{count} of {len(told)} pictures cannot be read: see their answers"} | content)

    def _in_thread(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    def body(self, request: Request) -> Body:
        """The body of a request, not read yet."""
        return Body(request, self.held)

    def health(self) -> dict[str, Any]:
        """What a client, and the page, may want to know of the run."""
        run, writer = self.run, self.writer
        prepared = run.form.preparation.prepared if run.form.preparation is not None else ()
        columns = [{"name": own.name, "kind": own.kind, "values": list(own.values)} for own in prepared]
        refusal = None
        if writer.rate and run.confidence is not None:
            least = 1 / (run.confidence.samples + 1)
            refusal = {"rate": writer.rate, "threshold": writer.threshold(None), "least": least}
        return {
            "status": "ok",
            "run": run.folder.name,
            "version": __version__,
            "takes": "pictures" if run.form.is_pictures else "rows",
            "shape": list(run.form.shape),
            "columns": columns,
            "num_classes": len(run.class_names),
            "classes": list(run.class_names[:_NAMED_CLASSES]),
            "calibrated": writer.calibrated,
            "refusal": refusal,
            "neighbors": writer.kept > 0,
            "limits": {
                "bytes": self.limits.bytes,
                "samples": self.limits.samples,
                "pixels": self.limits.pixels,
                "neighbors": self.limits.neighbors,
                "seconds": self.limits.seconds,
            },
            "notes": writer.notes,
        }
