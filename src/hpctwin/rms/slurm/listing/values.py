"""Values as different versions of Slurm write them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hpctwin.formats.accounting.slurm_values import number, said

EXCLUSIVE = {
    "NODE": ("OverSubscribe", "EXCLUSIVE"),
    "USER": ("ExclusiveUser", "YES"),
    "TOPO": ("ExclusiveTopo", "YES"),
}
"""``Exclusive=`` of a partition since 26.05, as the settings of earlier versions."""
_NARROW = {"nice": 31} | dict.fromkeys((
    "thread_spec", "core_spec", "sockets_per_node", "cores_per_socket", "threads_per_core",
    "tasks_per_node", "tasks_per_core", "tasks_per_socket", "tasks_per_board", "cpus_per_task",
    "sockets", "cores", "threads",
), 16)  # fmt: skip
"""Width of job and node fields below 32 bits; nice values are less an offset."""

_SIGNS = {
    "*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "!": "POWER_DOWN", "%": "POWERING_DOWN",
    "$": "MAINT", "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED", "-": "PLANNED",
}  # fmt: skip
"""Suffixes of a node's state in the output of sinfo and scontrol."""
_SHORT = {
    "DRAINED": "DRAIN", "DRAINING": "DRAIN", "DRNG": "DRAIN", "FAILING": "FAIL", "FAILG": "FAIL",
    "FUTR": "FUTURE", "NO_RESPOND": "NOT_RESPONDING", "INVALID_REG": "INVAL", "INVALID": "INVAL",
    "ALLOC": "ALLOCATED", "MIX": "MIXED", "COMP": "COMPLETING", "UNK": "UNKNOWN", "RESV": "RESERVED",
    "PLND": "PLANNED", "POW_DN": "POWERED_DOWN", "POW_UP": "POWERING_UP",
}  # fmt: skip
"""Other spellings of a node's state."""


def fields_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row whose unset fields are normalized.

    Args:
        row: Row of a job or a node, as in ``--json`` of any version.

    Returns:
        The same row. Texts such as ``(null)`` are empty, and ``{set, infinite, number}`` is a
        number or None.
    """
    found = dict(row)
    for key, value in row.items():
        if key in _NARROW or (isinstance(value, dict) and "number" in value):
            found[key] = number(value, _NARROW.get(key, 32))
        elif isinstance(value, str):
            found[key] = said(value)
    return found


def whole(value: Any) -> int:
    """Return a whole number of any version; 0 without one."""
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) else 0


def words(value: Any) -> set[str]:
    """Return state words of any version: a word, words joined by +, or a list."""
    if isinstance(value, str):
        return {word.strip("*~#!%$@^-").upper() for word in re.split(r"[+,\s]+", value) if word}
    if isinstance(value, list):
        return {word.upper() for word in value if isinstance(word, str)}
    return set()


def node_flags(text: str) -> set[str]:
    """Return words of a node's state, such as ``DOWN*``, ``IDLE+DRAIN`` or ``mix-``."""
    found = set()
    for word in re.split(r"[+,\s]+", text.upper()):
        bare = word.rstrip("".join(_SIGNS))
        found |= {_SHORT.get(bare, bare), *(_SIGNS[sign] for sign in word[len(bare) :])}
    return found - {""}


def moment(text: str) -> float:
    """Return seconds since the epoch from text without a zone.

    Slurm's commands write times so; they are run with UTC.

    Raises:
        ValueError: The text is no time, such as ``N/A`` or ``Unknown``.
    """
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def limit_s(text: str) -> float | None:
    """Return a limit in seconds; None for no limit.

    The text has minutes, or ``days-hours:minutes:seconds`` in part.
    """
    if re.fullmatch(r"\d{1,9}", text):
        return float(text) * 60 or None
    match = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?", text)
    if not match:
        return None
    days, a, b, c = (int(part or 0) for part in match.groups())
    hours, minutes, seconds = (a, b, c) if match[4] is not None or match[1] else (0, a, b)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return float(total) if total else None
