"""Remove passwords from URLs before they are written."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

__all__ = ["has_password", "without_password"]

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
