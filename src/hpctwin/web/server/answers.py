"""Answers of the server: HEAD, ETag, compression, and errors as problem details (RFC 9457)."""

from __future__ import annotations

import asyncio
import gzip
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from hashlib import blake2b
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from hpctwin.errors import (
    HpctwinError,
    JournalError,
    LateError,
    TooLargeError,
    UnknownNameError,
)
from hpctwin.web.views.views import example

__all__ = [
    "OPEN_PATHS",
    "PROBLEM",
    "Application",
    "Encoded",
    "Message",
    "Problem",
    "Receive",
    "Scope",
    "Send",
    "document",
    "faults",
    "handle_errors",
    "problem",
]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

SHORTEST = 2000
"""Number of bytes from which an answer is compressed."""
LEVEL = 5
"""Compression level; a higher one takes far more time for a few percent."""
MOST_KEPT = 32
"""Number of compressed answers that are kept, because many viewers request the same ones."""


class Encoded:
    """Add HEAD, ETag and gzip to an application; event streams stay as they are."""

    def __init__(self, inside: Application) -> None:
        self._inside = inside
        self._compressed: OrderedDict[bytes, asyncio.Task[bytes]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._inside(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            await self._head(scope, receive, send)
        else:
            await self._get(scope, receive, send)

    async def _get(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = {name.lower(): value for name, value in scope["headers"]}
        start: Message = {}

        async def encoded(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            if start:
                begin, start = start, {}
                if begin["status"] == 200 and not message.get("more_body", False):
                    begin, message = await self._encoded(begin, message, asked)
                await send(begin)
            await send(message)

        await self._inside(scope, receive, encoded)

    async def _encoded(
        self, start: Message, message: Message, asked: dict[bytes, bytes]
    ) -> tuple[Message, Message]:
        """Return a whole answer as the client can take it."""
        headers = {name.lower(): value for name, value in start["headers"]}
        body = message.get("body", b"")
        digest = blake2b(body, digest_size=16).digest()
        tag = headers.setdefault(b"etag", f'W/"{digest.hex()}"'.encode())
        headers[b"vary"] = b"Accept-Encoding"
        known = [one.strip() for one in asked.get(b"if-none-match", b"").split(b",")]
        if tag in known:
            del headers[b"content-length"]
            return _message(start, 304, headers), {**message, "body": b""}
        if len(body) >= SHORTEST and _takes_gzip(asked.get(b"accept-encoding", b"")):
            body = await self._gzip(digest, body)
            headers[b"content-encoding"] = b"gzip"
            headers[b"content-length"] = str(len(body)).encode()
        return _message(start, 200, headers), {**message, "body": body}

    async def _gzip(self, digest: bytes, body: bytes) -> bytes:
        """Return a compressed body; each is compressed once, in another thread."""
        found = self._compressed.get(digest)
        if found is None:
            found = asyncio.create_task(asyncio.to_thread(gzip.compress, body, LEVEL))
            self._compressed[digest] = found
            if len(self._compressed) > MOST_KEPT:
                self._compressed.popitem(last=False)
        self._compressed.move_to_end(digest)
        # A client that leaves does not end the work for others.
        return await asyncio.shield(found)

    async def _head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the headers that GET has; an endless answer is stopped."""
        ended = asyncio.Event()

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
            elif not ended.is_set():
                ended.set()
                await send({"type": "http.response.body", "body": b""})

        get = {**scope, "method": "GET"}
        answer = asyncio.ensure_future(self._get(get, receive, without_body))
        end = asyncio.ensure_future(ended.wait())
        await asyncio.wait((answer, end), return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        if not answer.done():
            answer.cancel()
            await asyncio.wait((answer,))
        elif not ended.is_set():
            answer.result()


def _message(start: Message, status: int, headers: dict[bytes, bytes]) -> Message:
    return {**start, "status": status, "headers": list(headers.items())}


def _takes_gzip(accepted: bytes) -> bool:
    for one in accepted.lower().split(b","):
        name, _, weight = one.partition(b";")
        if name.strip() in (b"gzip", b"*"):
            return weight.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False


PROBLEM = "application/problem+json"


class InvalidField(BaseModel):
    """A part of a request that is not valid."""

    field: str = Field(description="Name of the field or parameter, with its path.")
    detail: str = Field(description="Why its value is not valid.")


class Problem(BaseModel):
    """An error as of RFC 9457."""

    model_config = example(
        type="about:blank", title="Not Found", status=404, detail="no decision 999"
    )  # fmt: skip

    type: str = Field("about:blank", description="Always about:blank: the status says it.")
    title: str = Field(description="Name of the HTTP status.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="The error and what to do, in one sentence.")
    errors: list[InvalidField] = Field([], description="Invalid parts of the request.")


OPEN_PATHS = ("/healthz", "/readyz", "/favicon.ico")
"""Paths without a token."""

_MEANINGS = {
    400: "The body is not readable.",
    401: "A token is required.",
    403: "The role of the token does not allow it.",
    404: "The object does not exist.",
    408: "The body did not arrive in time.",
    409: "The request conflicts with the current state.",
    413: "The body is too long.",
    421: "The host name of the request is not allowed.",
    422: "A parameter or the body is not valid, or the request would take too long.",
    429: "Too many requests; see Retry-After.",
    503: "The server cannot answer now.",
}


def faults(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error answers of an operation for its OpenAPI document."""
    content = {"content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    return {status: {"description": _MEANINGS[status], **content} for status in statuses}


def problem(status: int, detail: str, errors: Iterable[InvalidField] = ()) -> bytes:
    """Return the body of an error answer."""
    title = HTTPStatus(status).phrase
    body = Problem(title=title, status=status, detail=detail, errors=list(errors))
    return body.model_dump_json(exclude=None if errors else {"errors"}).encode()


def handle_errors(app: FastAPI) -> None:
    """Make an application answer all errors as problem details."""

    def answer(
        status: int,
        detail: str,
        errors: Iterable[InvalidField] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        return Response(problem(status, detail, errors), status, headers, PROBLEM)

    @app.exception_handler(HpctwinError)
    def wrong(_: Request, error: HpctwinError) -> Response:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 409)
        return answer(status, str(error))

    @app.exception_handler(HTTPException)
    def refused(_: Request, error: HTTPException) -> Response:
        return answer(error.status_code, error.detail, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> Response:
        # Values are not repeated: they may be NaN, which JSON does not have.
        found = [
            InvalidField(field=".".join(map(str, one["loc"][1:])) or "body", detail=one["msg"])
            for one in error.errors()
        ]
        return answer(422, "; ".join(f"{one.field}: {one.detail}" for one in found), found)

    @app.exception_handler(Exception)
    def failed(_: Request, error: Exception) -> Response:
        return answer(500, "internal error; see the log of the server")


_STATUS: dict[type[HpctwinError], int] = {
    UnknownNameError: 404,
    JournalError: 503,
    TooLargeError: 422,
    LateError: 503,
}


def document(app: FastAPI) -> None:
    """Add to an application's OpenAPI document what FastAPI does not know: tokens and problems."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = made()
            schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            components = found.setdefault("components", {})
            components.setdefault("schemas", {}).update(schema.pop("$defs"), Problem=schema)
            for name in ("HTTPValidationError", "ValidationError"):
                components["schemas"].pop(name, None)
            components["securitySchemes"] = {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the server.",
                }
            }
            found["security"] = [{"token": []}]
            for path in found["paths"].keys() & set(OPEN_PATHS):
                for operation in found["paths"][path].values():
                    operation["security"] = []
                    operation["responses"].pop("401")
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]
