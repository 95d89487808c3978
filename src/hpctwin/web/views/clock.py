"""Time zone of the site, which the page shows times in unless its reader chooses another."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from zoneinfo import available_timezones

__all__ = ["site_zone"]

_HOST = Path("/etc/localtime")


@cache
def site_zone() -> str:
    """Return the time zone of this host, such as ``Europe/Berlin``; ``UTC`` if unknown.

    The environment variable TZ comes before the host's setting.
    """
    named = os.environ.get("TZ", "").lstrip(":")
    if not named and _HOST.is_symlink():
        named = _HOST.resolve().as_posix().partition("zoneinfo/")[2]
    return named if named in available_timezones() else "UTC"
