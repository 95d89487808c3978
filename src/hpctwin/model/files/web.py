"""Asking over HTTP: addresses, and why there was no answer, in our words."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

from hpctwin.errors import ConfigError

__all__ = ["UNREAD", "http_address", "why_unread"]

UNREAD = (OSError, http.client.HTTPException)
"""What `urllib.request.urlopen` and reading its answer raise, but for codes that say why."""


def http_address(url: str) -> str:
    """A URL of the web, as it is.

    Raises:
        ConfigError: it is none.
    """
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or any(letter.isspace() for letter in url):
        # It may hold a password, and so is not repeated.
        raise ConfigError("the URL must begin with http:// or https:// and name a host")
    return url


def why_unread(error: Exception) -> str:
    """The kind of a fault: its words may have the whole address in them, and that a token."""
    return type(getattr(error, "reason", error)).__name__
