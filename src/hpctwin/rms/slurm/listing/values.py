"""Values as different versions of Slurm write them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hpctwin.formats.accounting.slurm_values import number, said

__all__ = [
    "EXCLUSIVE",
    "fields_of",
    "limit_s",
    "moment",
    "node_flags",
    "number",
    "said",
    "whole",
    "words",
]

EXCLUSIVE = {
    "NODE": ("OverSubscribe", "EXCLUSIVE"),
    "USER": ("ExclusiveUser", "YES"),
    "TOPO": ("ExclusiveTopo", "YES"),
}
"""``Exclusive=`` of a partition since 26.05, as the settings that versions before it have."""
_NARROW = {"nice": 31} | dict.fromkeys((
    "thread_spec", "core_spec", "sockets_per_node", "cores_per_socket", "threads_per_core",
    "tasks_per_node", "tasks_per_core", "tasks_per_socket", "tasks_per_board", "cpus_per_task",
    "sockets", "cores", "threads",
), 16)  # fmt: skip
"""Width of the fields of jobs and nodes that have fewer than 32 bits; nice values are less an offset."""

_SIGNS = {
    "*": "NOT_RESPONDING", "~": "POWERED_DOWN", "#": "POWERING_UP", "!": "POWER_DOWN", "%": "POWERING_DOWN",
    "$": "MAINT", "@": "REBOOT_REQUESTED", "^": "REBOOT_ISSUED", "-": "PLANNED",
}  # fmt: skip
"""What follows the state of a node in sinfo's and scontrol's output."""
_SHORT = {
    "DRAINED": "DRAIN", "DRAINING": "DRAIN", "DRNG": "DRAIN", "FAILING": "FAIL", "FAILG": "FAIL",
    "FUTR": "FUTURE", "NO_RESPOND": "NOT_RESPONDING", "INVALID_REG": "INVAL", "INVALID": "INVAL",
    "ALLOC": "ALLOCATED", "MIX": "MIXED", "COMP": "COMPLETING", "UNK": "UNKNOWN", "RESV": "RESERVED",
    "PLND": "PLANNED", "POW_DN": "POWERED_DOWN", "POW_UP": "POWERING_UP",
}  # fmt: skip
"""Other ways to write a state of a node."""


def fields_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Read the fields of a job or a node in which Slurm writes that nothing is set.

    Args:
        row: As ``--json`` has it, of any version.

    Returns:
        The same row. Texts such as ``(null)`` are empty, and ``{set, infinite, number}`` is a number or None.
    """
    found = dict(row)
    for key, value in row.items():
        if key in _NARROW or (isinstance(value, dict) and "number" in value):
            found[key] = number(value, _NARROW.get(key, 32))
        elif isinstance(value, str):
            found[key] = said(value)
    return found


def whole(value: Any) -> int:
    """A whole number of any version; 0 where there is none."""
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) else 0


def words(value: Any) -> set[str]:
    """State words of any version: a word, several joined by +, or a list of words."""
    if isinstance(value, str):
        return {word.strip("*~#!%$@^-").upper() for word in re.split(r"[+,\s]+", value) if word}
    if isinstance(value, list):
        return {word.upper() for word in value if isinstance(word, str)}
    return set()


def node_flags(text: str) -> set[str]:
    """Read a node's state as words: ``DOWN*``, ``IDLE+DRAIN`` and ``mix-`` are of more than one."""
    found = set()
    for word in re.split(r"[+,\s]+", text.upper()):
        bare = word.rstrip("".join(_SIGNS))
        found |= {_SHORT.get(bare, bare), *(_SIGNS[sign] for sign in word[len(bare) :])}
    return found - {""}


def moment(text: str) -> float:
    """Seconds since the epoch. Slurm's commands write times without a zone: they are run with UTC.

    Raises:
        ValueError: it is no time, such as ``N/A`` or ``Unknown``.
    """
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def limit_s(text: str) -> float | None:
    """Seconds of a limit: minutes, or ``days-hours:minutes:seconds`` in part; None for no limit."""
    if re.fullmatch(r"\d{1,9}", text):
        return float(text) * 60 or None
    match = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?", text)
    if not match:
        return None
    days, a, b, c = (int(part or 0) for part in match.groups())
    hours, minutes, seconds = (a, b, c) if match[4] is not None or match[1] else (0, a, b)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return float(total) if total else None
