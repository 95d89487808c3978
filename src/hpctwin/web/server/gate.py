"""Checks of every request (size, rate, host name, token), and access by tokens."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.model.trusted import check_trusted
from hpctwin.web.server.encoding import Application, Encoded, Message, Receive, Scope, Send
from hpctwin.web.server.problems import OPEN_PATHS, PROBLEM, problem

__all__ = [
    "BURST",
    "ENVIRONMENT",
    "LARGEST_BODY",
    "MADE_UP",
    "Access",
    "Gate",
    "Role",
    "Token",
    "is_loopback",
    "made_up",
    "read_tokens",
]

Role = Literal["read-only", "operator"]
"""``read-only`` reads and runs what-ifs.

``operator`` also approves decisions and uses the kill switch.
"""

ENVIRONMENT = "HPCTWIN_TOKENS"
SHORTEST = 16
MADE_UP = "(made up)"
"""Name of the generated token; no name from a file has a blank."""


@dataclass(frozen=True)
class Token:
    """A secret with the rights of its holder.

    Args:
        name: Name of the holder, for the journal.
        role: Rights of the holder; see `Role`.
        secret: Secret text, never shown.
    """

    name: str
    role: Role
    secret: bytes

    def __repr__(self) -> str:
        return f"Token({self.name!r}, {self.role!r})"


@dataclass(frozen=True)
class Access:
    """Who may use the page.

    Args:
        tokens: Accepted tokens; without any, everyone who can reach the page may read it.
        hosts: Host names that requests may use. A request from another page that uses a different
            name for this address is refused (DNS rebinding).
    """

    tokens: tuple[Token, ...]
    hosts: frozenset[str]

    def who(self, authorization: str | None) -> Token | None:
        """Return the token in an authorization header; None if it is not an accepted one.

        All tokens are compared, each in constant time, so the response time reveals nothing.
        """
        scheme, _, given = (authorization or "").partition(" ")
        found = None
        for token in self.tokens:
            if hmac.compare_digest(token.secret, given.strip().encode()):
                found = token
        return found if scheme.lower() == "bearer" else None


def read_tokens(path: Path | None) -> tuple[Token, ...]:
    """Return the tokens in a file, or in the environment variable ``HPCTWIN_TOKENS``.

    Each line is ``NAME ROLE SECRET``; empty lines and lines that begin with ``#`` are ignored.

    Args:
        path: The file; only its owner may have read access.

    Raises:
        ConfigError: The file cannot be read, others may read or write it, or a line has another
            form.
    """
    if path is None:
        return tuple(_tokens(os.environ.get(ENVIRONMENT, "").splitlines(), ENVIRONMENT))
    check_trusted(path)
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{path}: other users may read these tokens; run chmod 600 {path}")
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    found = tuple(_tokens(lines, str(path)))
    if not found:
        raise ConfigError(
            f"{path}: file contains no token; write lines of the form NAME ROLE SECRET"
        )
    return found


def _tokens(lines: Iterable[str], where: str) -> Iterable[Token]:
    names = set()
    for number, line in enumerate(lines, 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        at = f"{where}, line {number}"
        if len(parts) != 3:
            raise ConfigError(
                f"{at}: found {len(parts)} words; write lines of the form NAME ROLE SECRET"
            )
        name, role, secret = parts
        if role not in get_args(Role):
            raise UnknownNameError(f"{at}: role", role, get_args(Role))
        if len(secret) < SHORTEST:
            raise ConfigError(
                f"{at}: secret of {name} has {len(secret)} characters; use {SHORTEST} or "
                "more: openssl rand -hex 24"
            )
        if name in names:
            raise ConfigError(f"{at}: {name} is listed twice; list each name once")
        names.add(name)
        yield Token(name, role, secret.encode())  # type: ignore[arg-type]


def made_up() -> Token:
    """Return a token for this run; all users of a host can reach its loopback ports."""
    return Token(MADE_UP, "read-only", secrets.token_urlsafe(24).encode())


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


LARGEST_BODY = 65_536
BODY_S = 15.0
"""Time within which a body must arrive, in seconds."""
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

Refusal = tuple[int, str, list[tuple[bytes, bytes]]]

_TOO_LONG: Refusal = (413, f"body exceeds {LARGEST_BODY} bytes", [])
_TOO_LATE: Refusal = (408, f"body did not arrive within {BODY_S:g} s", [(b"connection", b"close")])


class Gate:
    """Access control in front of the application.

    Args:
        inside: The application.
        access: Accepted tokens and host names.
    """

    def __init__(self, inside: Application, access: Access) -> None:
        self._inside = Encoded(inside)
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

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [*message.get("headers", []), *_HEADERS]
                if not any(name.lower() == b"cache-control" for name, _ in kept):
                    kept.append((b"cache-control", b"no-store"))
                message = {**message, "headers": kept}
            await send(message)

        if scope["method"] not in ("GET", "HEAD"):
            try:
                body = await asyncio.wait_for(_body(receive), BODY_S)
            except TimeoutError:
                await _answer(send, *_TOO_LATE)
                return
            if body is None:
                await _answer(send, *_TOO_LONG)
                return
            receive = _again(body, receive)
        await self._inside(scope, receive, with_headers)

    def _refused(self, scope: Scope) -> Refusal | None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        host = headers.get(b"host", b"").decode("latin-1")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self._access.hosts and name.strip("[]").lower() not in self._access.hosts:
            return 421, f"host {name or 'unnamed'} is not allowed; add it with --allow-host", []
        # Health checks cost nothing, and must not fail because others ask too much.
        checks = scope["path"] in ("/healthz", "/readyz")
        wait_s = 0.0 if checks else self._too_many((scope.get("client") or ("", 0))[0])
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
        is_open = path in OPEN_PATHS or path.endswith("/") or path.startswith("/static/")
        if who is None and not is_open:
            wanted = [(b"www-authenticate", b'Bearer realm="hpctwin"')]
            return 401, "a token is required: Authorization: Bearer TOKEN", wanted
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

    async def once() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once


async def _answer(send: Send, status: int, detail: str, headers: list[tuple[bytes, bytes]]) -> None:
    body = problem(status, detail)
    kind = [(b"content-type", PROBLEM.encode()), (b"cache-control", b"no-store")]
    length = [(b"content-length", str(len(body)).encode())]
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [*kind, *length, *headers, *_HEADERS],
        }
    )
    await send({"type": "http.response.body", "body": body})
