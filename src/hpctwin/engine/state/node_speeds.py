"""Speeds of nodes in the engine's form."""

from __future__ import annotations

from collections.abc import Iterable

from hpctwin.model.text import exact

__all__ = ["speed_columns"]


def speed_columns(speeds: Iterable[float]) -> dict[str, list[float]]:
    """Return speeds of pools as fields of `records.Pool`: float and exact fraction."""
    found = [float(speed) for speed in speeds]
    fractions = [exact(speed) for speed in found]
    return {
        "speed": found,
        "top": [fraction.numerator for fraction in fractions],
        "bottom": [fraction.denominator for fraction in fractions],
    }
