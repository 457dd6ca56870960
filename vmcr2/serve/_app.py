"""The endpoints: `/predict`, `/health`, `/metrics` and the page. Every refusal is one sentence in JSON."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .._shared import did_you_mean
from .._version import __version__
from ..runs import Run
from ._limits import Limits, RequestError
from ._metrics import Metrics
from ._service import Service

_PAGE = Path(__file__).parent / "page"
_ASSETS = {"/": "index.html", "/style.css": "style.css", "/page.js": "page.js"}
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_PATHS = ("/", "/predict", "/health", "/metrics")
_PATH_NAMES = {*_ASSETS, *_PATHS, "/openapi.json"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src data: blob:; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_BODY = {"type": "string", "format": "binary"}
_REQUEST_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"file": {"type": "array", "items": _BODY}}}
            },
            "image/*": {"schema": _BODY},
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
        },
    }
}


class Options(BaseModel, extra="forbid"):
    """What a request may ask for, after the question mark of its address."""

    refuse: float | None = Field(None, ge=0, lt=1, description="False-alarm rate; 0 refuses nothing.")
    neighbors: int = Field(0, ge=0, description="How many of the nearest training samples to show.")


def create_app(
    run: Run, *, limits: Limits | None = None, refuse: float | None = None, hosts: Collection[str] | None = None
) -> FastAPI:
    """The application that serves a run.

    Args:
        run: of pictures or of a table.
        limits: of requests.
        refuse: the false-alarm rate of requests that name none; None is 0.05, if the calibration allows it; 0 is none.
        hosts: the names that clients may know this server by; None for any. A page in the browser of somebody on this
            machine can reach the server by a name of its own: with a list it is refused.
    """
    service = Service(run, limits or Limits(), refuse)

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        service.close()

    # its pages of documentation would load scripts from elsewhere; /openapi.json stays
    app = FastAPI(title="vmcr2", version=__version__, docs_url=None, redoc_url=None, lifespan=living)
    app.state.service = service
    app.add_middleware(_Front, metrics=service.metrics, hosts=hosts)
    _add_errors(app)
    _add_pages(app)
    _add_watching(app, service)

    @app.post("/predict", openapi_extra=_REQUEST_BODY)
    async def predict(request: Request, options: Annotated[Options, Query()]) -> Response:
        """Classes of pictures, or of the rows of a table."""
        body = service.body(request)
        try:
            if options.neighbors > service.limits.neighbors:
                raise RequestError(422, f"neighbors may be at most {service.limits.neighbors}")
            reply = await service.predict(body, options.refuse, options.neighbors)
        except RequestError as error:
            if error.status != 408:
                await body.discard()
            return _refused(error.status, str(error), close=not body.whole)
        except ClientDisconnect:
            return _refused(499, "the client went away")
        return JSONResponse(reply.content, reply.status)

    return app


def _add_watching(app: FastAPI, service: Service) -> None:
    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def health() -> Response:
        """That it runs, and what it takes."""
        return JSONResponse(service.health())

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counts for Prometheus."""
        held = service.held
        text = service.metrics.text(waiting=held.requests, held_bytes=held.bytes, batches=service.batcher.batches)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _add_pages(app: FastAPI) -> None:
    def add(path: str, file: Path) -> None:
        content, kind = file.read_bytes(), _TYPES[file.suffix]

        async def asset() -> Response:
            return Response(content, media_type=kind, headers=_HEADERS)

        app.add_api_route(path, asset, methods=["GET", "HEAD"], include_in_schema=False)

    for path, name in _ASSETS.items():
        add(path, _PAGE / name)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def wrong_options(request: Request, error: RequestValidationError) -> Response:
        return _refused(422, "; ".join(map(_in_words, error.errors())))

    @app.exception_handler(HTTPException)
    async def wrong_path(request: Request, error: HTTPException) -> Response:
        path = request.url.path
        if error.status_code == 404:
            return _refused(404, f"there is nothing at {path[:100]}: this server has {', '.join(_PATHS)}")
        if error.status_code == 405:
            use = "POST" if path == "/predict" else "GET"
            return _refused(405, f"{path} does not take {request.method}: use {use}", {"Allow": use})
        return _refused(error.status_code, str(error.detail))

    @app.exception_handler(Exception)
    async def own_fault(request: Request, error: Exception) -> Response:
        # starlette raises it again after this, and uvicorn logs it with its traceback
        return _refused(500, "something went wrong in the server: its log says what", close=True)


def _in_words(problem: Any) -> str:
    name = str(problem["loc"][-1])
    if problem["type"] == "extra_forbidden":
        return f"there is no option {name}{did_you_mean(name, Options.model_fields)}"
    return f"{name} is {str(problem['input'])[:50]!r}: {problem['msg']}"


def _refused(status: int, sentence: str, headers: dict[str, str] | None = None, *, close: bool = False) -> Response:
    # a client's half characters, which JSON allows and UTF-8 does not
    sentence = sentence.encode("utf-8", "replace").decode()
    own = dict(headers or {})
    if status == 503:
        own["Retry-After"] = "1"
    if close:  # the rest of the request has not been read
        own["Connection"] = "close"
    return JSONResponse({"error": sentence}, status, own)


class _Front:
    """Counts and times all requests, and refuses those for another host."""

    def __init__(self, app: ASGIApp, metrics: Metrics, hosts: Collection[str] | None) -> None:
        self.app, self.metrics, self.hosts = app, metrics, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, start = 500, time.perf_counter()

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await (self._strange_host(scope) or self.app)(scope, receive, sent)
        finally:
            # paths that do not exist are one: clients make them up
            path = scope["path"] if scope["path"] in _PATH_NAMES else "other"
            self.metrics.request(path, status, time.perf_counter() - start)

    def _strange_host(self, scope: Scope) -> Response | None:
        if self.hosts is None:
            return None
        given = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        name = given[1:].partition("]")[0] if given.startswith("[") else given.partition(":")[0]
        if name.lower() in self.hosts:
            return None
        return _refused(
            421, f"this server does not answer for the host {name[:100]!r}: start it with --allow-host NAME", close=True
        )
