"""Numbers as different versions of Slurm write them in JSON."""

from __future__ import annotations

import math
import re
from typing import Any

__all__ = ["number"]


def number(value: Any) -> float | None:
    """A number of any version: plain, text, or ``{set, infinite, number}``; None where not set."""
    if isinstance(value, dict):
        if value.get("infinite") is True:
            return math.inf
        return number(value.get("number")) if value.get("set", True) else None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,15}(\.\d+)?", value):
        return float(value)
    return None
