"""HTTP addresses, passwords in them, and reasons for missing answers."""

from __future__ import annotations

import http.client
import re
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from hpctwin.errors import ConfigError

UNREAD = (OSError, http.client.HTTPException)
"""Errors of `urllib.request.urlopen` and of reading its answer.

Codes that give the reason are not included.
"""


def http_address(url: str) -> str:
    """Return an HTTP or HTTPS URL unchanged."""
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or any(letter.isspace() for letter in url):
        # It may contain a password, and so is not repeated.
        raise ConfigError("the URL must start with http:// or https:// and name a host")
    return url


def why_unread(error: Exception) -> str:
    """Return the kind of an error.

    Its text may contain the whole address, and so a token.
    """
    return type(getattr(error, "reason", error)).__name__


_SECRET = re.compile(r"pass|secret|token", re.I)


def without_password(url: str) -> str:
    """Return a URL without passwords, neither before the host nor in its parameters.

    The user's name stays. A text that cannot be read as a URL becomes empty.
    """
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        user = "" if parts.username is None else quote(parts.username, safe="%")
        query = [pair for pair in parse_qsl(parts.query, True) if not _SECRET.search(pair[0])]
    except ValueError:
        return ""
    place = f"{user}@{host}" if user else host
    asked = f"?{urlencode(query)}" if query else ""
    return f"{parts.scheme}://{place}{parts.path}{asked}" if parts.scheme else ""


def has_password(url: str) -> bool:
    """Return whether a URL contains a password; True if it cannot be read as a URL."""
    try:
        parts = urlsplit(url)
        asked = any(_SECRET.search(name) for name, _ in parse_qsl(parts.query, True))
        return asked or parts.password is not None
    except ValueError:
        return True
