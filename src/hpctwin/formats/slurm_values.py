"""Numbers as different versions of Slurm write them in JSON, and what jobs ask of nodes."""

from __future__ import annotations

import math
import re
from typing import Any

from hpctwin.errors import WorkloadError
from hpctwin.model.features import check_features

__all__ = ["constraint", "number"]


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


def constraint(text: str, nodes: float | None) -> str | None:
    """A job's ``--constraint`` as `hpctwin.model.features` reads it.

    Args:
        text: as Slurm has it, such as ``(a100|v100)&ib``.
        nodes: of the job; None if that is not known.

    Returns:
        Nothing asked for where there is none. None where it cannot be said: features that are counted
        (``a100*2``), and one of several for all nodes (``[a100|v100]``) of a job of more than one.
    """
    text = re.sub(r"\s", "", text)
    if nodes == 1:
        text = re.sub(r"^\[([^\[\]]*)\]$", r"\1", text).replace("[", "(").replace("]", ")")
    try:
        check_features([text] if text else [])
    except WorkloadError:
        return None
    return text
