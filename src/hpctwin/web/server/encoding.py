"""Answers to HEAD, conditional answers (ETag), and compression."""

from __future__ import annotations

import asyncio
import gzip
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import blake2b
from typing import Any

__all__ = ["Application", "Encoded", "Message", "Receive", "Scope", "Send"]

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
