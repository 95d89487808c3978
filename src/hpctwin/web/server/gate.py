"""Checks of every request (size, rate, host name, token), and access by tokens."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

from hpctwin.errors import ConfigError, DeniedError, UnknownNameError
from hpctwin.model.trusted import check_trusted
from hpctwin.web.server.answers import (
    OPEN_PATHS,
    PROBLEM,
    Application,
    Encoded,
    Message,
    Receive,
    Scope,
    Send,
    problem,
)
from hpctwin.web.views.visibility import EVERYTHING, Visibility

__all__ = [
    "BURST",
    "ENVIRONMENT",
    "LARGEST_BODY",
    "MADE_UP",
    "Access",
    "Gate",
    "Person",
    "Role",
    "Token",
    "is_loopback",
    "made_up",
    "read_tokens",
]

Role = Literal["viewer", "user", "operator"]
"""``viewer`` reads and runs what-ifs.

``user`` does the same, and is the cluster's user of that name. ``operator`` also approves decisions
and uses the kill switch, and sees all names.
"""

ENVIRONMENT = "HPCTWIN_TOKENS"
SHORTEST = 16
MADE_UP = "(made up)"
"""Name of the generated token; no name from a file has a blank."""


@dataclass(frozen=True)
class Person:
    """A visitor of the page.

    Args:
        name: Name of the visitor, for the journal; of a ``user`` that of the cluster.
        role: Rights of the visitor; see `Role`.
    """

    name: str
    role: Role


@dataclass(frozen=True, repr=False)
class Token(Person):
    """A secret with the rights of its holder."""

    secret: bytes

    def __repr__(self) -> str:
        return f"Token({self.name!r}, {self.role!r})"


class SignsIn(Protocol):
    """Sign-in of people; see `hpctwin.web.server.sign_in`."""

    @property
    def address(self) -> str | None:
        """Path where a person signs in; None if a proxy does it."""

    def serves(self, path: str) -> bool:
        """Return whether the sign-in itself answers at a path."""

    def who(self, headers: Sequence[tuple[bytes, bytes]], peer: str) -> Person | None:
        """Return the person that sends a request; None without sign-in."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of the sign-in."""


@dataclass(frozen=True)
class Access:
    """Access to the page.

    Args:
        tokens: Accepted tokens; without any and without sign-in, everyone who can reach the page
            may read it.
        hosts: Host names that requests may use. A request from another page that uses a different
            name for this address is refused (DNS rebinding).
        sign_in: Sign-in of people; None without one.
        hide_names: Whether the names of other users, their accounts and jobs are hidden from all
            but operators.
    """

    tokens: tuple[Token, ...]
    hosts: frozenset[str]
    sign_in: SignsIn | None = None
    hide_names: bool = False

    def visibility(self, who: Person | None) -> Visibility:
        """Return the names that a visitor may see."""
        if not self.hide_names or (who is not None and who.role == "operator"):
            return EVERYTHING
        return Visibility(who.name if who is not None and who.role == "user" else "", names=False)

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
    return Token(MADE_UP, "viewer", secrets.token_urlsafe(24).encode())


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

PAGES = ("job", "node", "user", "partition", "decision")
"""First part of the addresses of pages about one thing."""
TABLES = ("history", "compare")
"""Addresses of pages about many things."""
_PAGE = re.compile(rf"(/[^/]+)?/(({'|'.join(PAGES)})/.+|{'|'.join(TABLES)})|.*/")


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

        if self._access.sign_in is not None and self._access.sign_in.serves(scope["path"]):
            await self._access.sign_in(scope, receive, with_headers)
            return
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
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
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
        state, sign_in = scope.setdefault("state", {}), self._access.sign_in
        given = headers.get(b"authorization")
        who: Person | None = self._access.who(None if given is None else given.decode("latin-1"))
        if who is None and sign_in is not None:
            peer = state.get("peer") or (scope.get("client") or ("",))[0]
            try:
                who = sign_in.who(scope["headers"], peer)
                if who is not None:
                    _check_same_site(scope["method"], headers)
            except DeniedError as refused:
                return refused.status, refused.detail, []
        state["who"], state["visibility"] = who, self._access.visibility(who)
        state["sign_in"] = None if sign_in is None else sign_in.address
        path = scope["path"]
        if sign_in is None and not self._access.tokens:
            return None
        if sign_in is not None and sign_in.serves(path):
            return None
        is_page = "/api/" not in path and _PAGE.fullmatch(path) is not None
        if who is None and not (is_page or path in OPEN_PATHS or path.startswith("/static/")):
            wanted = [(b"www-authenticate", b'Bearer realm="hpctwin"')]
            if sign_in is None:
                return 401, "a token is required: Authorization: Bearer TOKEN", wanted
            if sign_in.address is not None:
                wanted.append((b"x-hpctwin-sign-in", sign_in.address.encode()))
            return 401, "sign in, or give a token: Authorization: Bearer TOKEN", wanted
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


def _check_same_site(method: str, headers: dict[bytes, bytes]) -> None:
    """Refuse an action that a page of another site sends with this browser's sign-in."""
    if method in ("GET", "HEAD", "OPTIONS"):
        return
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    foreign = origin is not None and origin.partition(b"//")[2] != headers.get(b"host", b"")
    if site not in (None, b"same-origin", b"none") or (site is None and foreign):
        raise DeniedError(403, "the request comes from a page of another site")


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
