"""Access control: tokens and their roles."""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from hpctwin.errors import ConfigError, UnknownNameError
from hpctwin.model.trusted import check_trusted

__all__ = [
    "ENVIRONMENT",
    "MADE_UP",
    "Access",
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
            raise ConfigError(f"{path}: others may read these tokens; chmod 600 {path}")
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    found = tuple(_tokens(lines, str(path)))
    if not found:
        raise ConfigError(f"{path}: there is no token in it; a line is: NAME ROLE SECRET")
    return found


def _tokens(lines: Iterable[str], where: str) -> Iterable[Token]:
    names = set()
    for number, line in enumerate(lines, 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        at = f"{where}, line {number}"
        if len(parts) != 3:
            raise ConfigError(f"{at}: {len(parts)} words; a line is: NAME ROLE SECRET")
        name, role, secret = parts
        if role not in get_args(Role):
            raise UnknownNameError(f"{at}: role", role, get_args(Role))
        if len(secret) < SHORTEST:
            raise ConfigError(
                f"{at}: the secret of {name} has {len(secret)} characters; "
                f"{SHORTEST} or more are right: openssl rand -hex 24"
            )
        if name in names:
            raise ConfigError(f"{at}: {name} is named twice")
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
