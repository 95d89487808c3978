"""Speeds of nodes as kernels have them."""

from __future__ import annotations

from collections.abc import Iterable

from hpctwin.model.text.units import exact

__all__ = ["speed_columns"]


def speed_columns(speeds: Iterable[float]) -> dict[str, list[float]]:
    """Speeds of pools in the engine's form: fields of `layout.Pool`."""
    found = [float(speed) for speed in speeds]
    fractions = [exact(speed) for speed in found]
    return {
        "speed": found,
        "top": [fraction.numerator for fraction in fractions],
        "bottom": [fraction.denominator for fraction in fractions],
    }
