"""Speeds of nodes, which count as their decimals say: 0.7 is seven tenths, not the nearest binary number."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

__all__ = ["exact", "speed_columns"]


def exact(speed: float) -> Fraction:
    """A speed as its decimals say, to nine places; above 9 to fewer, so that whole numbers suffice."""
    speed = min(max(float(speed), 1e-9), 1e9)
    return Fraction(speed).limit_denominator(min(10**9, int(3e9 / math.sqrt(speed))))


def speed_columns(speeds: Iterable[float]) -> dict[str, list[float]]:
    """Speeds of pools in the engine's form: fields of `layout.Pool`."""
    found = [float(speed) for speed in speeds]
    fractions = [exact(speed) for speed in found]
    return {
        "speed": found,
        "top": [fraction.numerator for fraction in fractions],
        "bottom": [fraction.denominator for fraction in fractions],
    }
