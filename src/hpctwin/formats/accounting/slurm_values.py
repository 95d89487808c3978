"""Numbers and texts as different versions of Slurm write them; needs no Polars."""

from __future__ import annotations

import math
import re
from typing import Any

_NOTHING = {"", "(null)", "n/a", "na", "not_set", "notset", "*"}
"""What Slurm prints for a text that is not set, in lower case."""

_WIDE = frozenset(2**width - last for width in (32, 63, 64) for last in (1, 2))
_UNSET = {
    bits: _WIDE | {2**width - last for width in (bits, bits - 1) for last in (1, 2)}
    for bits in (16, 31)
} | {32: _WIDE}
"""``NO_VAL`` and ``INFINITE`` by width of a field, with the top bit and without."""


def number(value: Any, bits: int = 32) -> float | None:
    """Read a number of any Slurm version; None if it is not set.

    A number is plain, text, or ``{set, infinite, number}``. Slurm's ``NO_VAL`` and ``INFINITE`` are
    the two largest integers of a field. Some fields are printed without their top bit, which is a
    flag (``thread_spec``: 32766).

    Args:
        bits: Width of the field: 16, 31 or 32. 32 stands for all wider fields; their two values are
            never numbers in any field.
    """
    if isinstance(value, dict):
        if not value.get("set", True):
            return None
        return math.inf if value.get("infinite") is True else number(value.get("number"), bits)
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,20}(\.\d+)?", value):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return None if value in _UNSET[bits] else float(value)


def said(value: Any) -> str:
    """Read a text of any Slurm version; empty if it is not set.

    A text is plain or in an object.
    """
    if isinstance(value, dict):
        value = value.get("string") if value.get("set", True) else ""
    text = value if isinstance(value, str) else ""
    return "" if text.strip().lower() in _NOTHING else text
