"""Who may ask what: tokens and their roles."""

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
from hpctwin.model.files.trusted import check_trusted

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
"""``read-only`` looks and asks what-if; ``operator`` also confirms decisions and throws the kill switch."""

ENVIRONMENT = "HPCTWIN_TOKENS"
SHORTEST = 16
MADE_UP = "(made up)"
"""Name of the token of a run that was given none; no token from a file has a blank in its name."""


@dataclass(frozen=True)
class Token:
    """A secret, and what whoever has it may do.

    Args:
        name: whose it is, as the journal will say.
        role: see `Role`.
        secret: never shown.
    """

    name: str
    role: Role
    secret: bytes

    def __repr__(self) -> str:
        return f"Token({self.name!r}, {self.role!r})"


@dataclass(frozen=True)
class Access:
    """Who may come in.

    Args:
        tokens: any of these is asked for; without one, everybody who reaches the page may look.
        hosts: names under which browsers may ask for this page; a page elsewhere that gives itself
            another name for this address is refused (DNS rebinding).
    """

    tokens: tuple[Token, ...]
    hosts: frozenset[str]

    def who(self, authorization: str | None) -> Token | None:
        """Whose token it is; None if it is none of ours.

        All are compared, each in constant time: how long it takes tells nothing.
        """
        scheme, _, given = (authorization or "").partition(" ")
        found = None
        for token in self.tokens:
            if hmac.compare_digest(token.secret, given.strip().encode()):
                found = token
        return found if scheme.lower() == "bearer" else None


def read_tokens(path: Path | None) -> tuple[Token, ...]:
    """Tokens from a file, or from the environment variable ``HPCTWIN_TOKENS``, in the same form.

    Each line is ``NAME ROLE SECRET``; empty lines and those that begin with ``#`` say nothing.

    Args:
        path: the file, which only its owner may read.

    Raises:
        ConfigError: it cannot be read, others may read or write it, or a line is not of that form.
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
    """A token for this run: on a host with several users all of them reach a port of loopback."""
    return Token(MADE_UP, "read-only", secrets.token_urlsafe(24).encode())


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this host only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
