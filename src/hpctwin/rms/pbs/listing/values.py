"""Single values as PBS's commands and hooks write them."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Mapping
from typing import Any

__all__ = ["begin_time", "integer", "is_false", "is_true", "objects", "resources", "time_s"]


def objects(content: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """The objects under a key; no such key: there are none."""
    found = content.get(key)
    if not isinstance(found, dict):
        return {}
    return {name: about for name, about in found.items() if isinstance(about, dict)}


def resources(value: Any) -> dict[str, Any]:
    """Resources of an object, or of text such as ``ncpus=2,select=2:ncpus=1``."""
    if isinstance(value, dict):
        return value
    parts = re.split(r",(?=[\w.]+=)", value) if isinstance(value, str) and value else []
    return dict(part.split("=", 1) for part in parts if "=" in part)


def time_s(value: Any) -> float | None:
    """Seconds since the epoch, of such seconds or of the text that PBS's commands write where TZ is UTC."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 < value < 1e11 else None
    if not isinstance(value, str):
        return None
    if re.fullmatch(r"\d{1,11}", value):
        return float(value) or None
    try:
        return float(calendar.timegm(time.strptime(value, "%a %b %d %H:%M:%S %Y")))
    except (ValueError, OverflowError):
        return None


def begin_time(seconds: float) -> str:
    """A time as ``qalter -a`` takes it where TZ is UTC."""
    return time.strftime("%Y%m%d%H%M.%S", time.gmtime(seconds))


def integer(value: Any) -> int:
    """Return a whole number, also of 4.0; 0 if it is not one."""
    match = re.fullmatch(r"(\d{1,9})(?:\.0+)?", str(value))
    return int(match[1]) if match else 0


def is_false(value: Any) -> bool:
    """Whether PBS says no."""
    return str(value).lower() in ("false", "0", "f", "n", "no")


def is_true(value: Any) -> bool:
    """Whether PBS says yes."""
    return str(value).lower() in ("true", "1", "t", "y", "yes")
