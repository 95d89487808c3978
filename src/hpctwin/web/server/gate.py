"""Checks of every request (size, rate, host name, token), and safe headers."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hpctwin.web.server.access import Access

__all__ = ["BURST", "LARGEST_BODY", "Gate"]

LARGEST_BODY = 65_536
PER_S, BURST = 50.0, 200.0
"""Long-term rate of a client's requests per second, and maximum number at once."""
MOST_CLIENTS = 4096

_HEADERS = [
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; base-uri 'none'; "
     b"form-action 'none'; frame-ancestors 'none'; object-src 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]  # fmt: skip

_TOO_LONG: tuple[int, str, list[tuple[bytes, bytes]]]
_TOO_LONG = (413, f"a body of more than {LARGEST_BODY} bytes", [])

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_OPEN = ("/healthz", "/readyz", "/favicon.ico")
"""Paths without a token; pages, which end with a slash and are only code, need none."""


class Gate:
    """Access control in front of the application.

    Args:
        inside: The application.
        access: Accepted tokens and host names.
    """

    def __init__(self, inside: Application, access: Access) -> None:
        self._inside = inside
        self._access = access
        self._rates: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer with the reason for its refusal."""
        if scope["type"] != "http":
            await self._inside(scope, receive, send)
            return
        refused = self._refused(scope)
        if refused is not None:
            await _answer(send, *refused)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                kept = [*message.get("headers", []), *_HEADERS]
                if not any(name.lower() == b"cache-control" for name, _ in kept):
                    kept.append((b"cache-control", b"no-store"))
                message = {**message, "headers": kept}
            await send(message)

        if scope["method"] not in ("GET", "HEAD"):
            body = await _body(receive)
            if body is None:
                await _answer(send, *_TOO_LONG)
                return
            receive = _again(body, receive)
        await self._inside(scope, receive, with_headers)

    def _refused(self, scope: Scope) -> tuple[int, str, list[tuple[bytes, bytes]]] | None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self._access.hosts and name.strip("[]").lower() not in self._access.hosts:
            return 421, f"this is not {name or 'a host'}; --allow-host names others", []
        wait_s = self._too_many((scope.get("client") or ("", 0))[0])
        if wait_s > 0:
            again = str(max(1, round(wait_s))).encode()
            return 429, "too many requests", [(b"retry-after", again)]
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            return _TOO_LONG
        scope.setdefault("state", {})["who"] = None
        if not self._access.tokens:
            return None
        given = headers.get(b"authorization")
        who = self._access.who(None if given is None else given.decode("latin-1"))
        scope["state"]["who"] = who
        path = scope["path"]
        is_open = path in _OPEN or path.endswith("/") or path.startswith("/static/")
        if who is None and not is_open:
            wanted = [(b"www-authenticate", b'Bearer realm="hpctwin"')]
            return 401, "a token is needed: Authorization: Bearer TOKEN", wanted
        return None

    def _too_many(self, client: str) -> float:
        """Return the seconds until this client may send a request; 0 if it may now."""
        now = time.monotonic()
        left, at = self._rates.pop(client, (BURST, now))
        left = min(BURST, left + (now - at) * PER_S)
        self._rates[client] = (max(left - 1.0, 0.0), now)
        if len(self._rates) > MOST_CLIENTS:
            self._rates.popitem(last=False)
        return 0.0 if left >= 1.0 else (1.0 - left) / PER_S


async def _body(receive: Receive) -> bytes | None:
    """Return a whole body; None if it is cut off or too long, whatever its header claims."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if sum(map(len, parts)) > LARGEST_BODY:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that repeats a body that was already read, then continues."""
    given = False

    async def once() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once


async def _answer(send: Send, status: int, detail: str, headers: list[tuple[bytes, bytes]]) -> None:
    body = json.dumps({"detail": detail}).encode()
    kind = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    length = [(b"content-length", str(len(body)).encode())]
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*kind, *length, *headers, *_HEADERS],
        }
    )
    await send({"type": "http.response.body", "body": body})
