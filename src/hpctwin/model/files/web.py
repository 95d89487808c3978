"""HTTP addresses, and reasons for missing answers in hpctwin's words."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

from hpctwin.errors import ConfigError

__all__ = ["UNREAD", "http_address", "why_unread"]

UNREAD = (OSError, http.client.HTTPException)
"""Errors of `urllib.request.urlopen` and of reading its answer.

Codes that give the reason are not included.
"""


def http_address(url: str) -> str:
    """Return an HTTP or HTTPS URL unchanged.

    Raises:
        ConfigError: It is none.
    """
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or any(letter.isspace() for letter in url):
        # It may contain a password, and so is not repeated.
        raise ConfigError("the URL must begin with http:// or https:// and name a host")
    return url


def why_unread(error: Exception) -> str:
    """Return the kind of an error.

    Its text may contain the whole address, and so a token.
    """
    return type(getattr(error, "reason", error)).__name__
