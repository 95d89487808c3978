"""Speeds, bandwidths and times as text: SimGrid's units, and others such as ``GB/s``."""

from __future__ import annotations

import math
import re

__all__ = ["DEFAULT_GAMMA", "bandwidth", "latency", "number", "speed"]

_AMOUNT = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z/]*)\s*")
_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
            "Z": 1e21, "Y": 1e24}  # fmt: skip
_BINARY = {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTPEZY", start=1)}
_WORDS = {"kilo": 1e3, "mega": 1e6, "giga": 1e9, "tera": 1e12, "peta": 1e15, "exa": 1e18,
          "zetta": 1e21, "yotta": 1e24}  # fmt: skip
_SPEEDS = {
    **{f"{prefix}f": factor for prefix, factor in _DECIMAL.items()},
    **{f"{prefix}flop/s": factor for prefix, factor in _DECIMAL.items()},
    **{f"{word}flops": factor for word, factor in {"": 1.0, **_WORDS}.items()},
}
_BANDWIDTHS = {
    f"{prefix}{unit}": factor / bits
    for unit, bits in (("Bps", 1), ("B/s", 1), ("bps", 8), ("b/s", 8), ("bit/s", 8))
    for prefix, factor in {**_DECIMAL, **_BINARY}.items()
}
DEFAULT_GAMMA = 4194304.0
"""Default of the largest number of bytes in flight of one flow (TCP's window)."""
_TIMES = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6,
          "ns": 1e-9, "ps": 1e-12}  # fmt: skip


def speed(text: str) -> float:
    """Return a speed in flop/s, from text such as ``2.5Gf`` or ``16.673E9flops``.

    Raises:
        ValueError: It is no speed.
    """
    return _amount(text, _SPEEDS, "f", "speed", "100Mf or 9.2Gf")


def bandwidth(text: str) -> float:
    """Return a bandwidth in B/s, from text such as ``125MBps`` or ``1Gbps`` (bits).

    Raises:
        ValueError: It is no bandwidth.
    """
    return _amount(text, _BANDWIDTHS, "Bps", "bandwidth", "125MBps (bytes) or 1Gbps (bits)")


def latency(text: str) -> float:
    """Return a time in seconds, from text such as ``50us``.

    Raises:
        ValueError: It is no time.
    """
    return _amount(text, _TIMES, "s", "time", "50us or 1.5ms")


def number(text: str) -> float:
    """Return a number without a unit.

    Raises:
        ValueError: It is no number.
    """
    return _amount(text, {"": 1.0}, "", "number", "4194304")


def _amount(text: str, units: dict[str, float], default: str, what: str, example: str) -> float:
    found = _AMOUNT.fullmatch(text)
    factor = units.get(found[2] or default) if found else None
    if found is None or factor is None:
        raise ValueError(f"{what} {text[:40]!r} must be such as {example}")
    value = float(found[1]) * factor
    if not math.isfinite(value):
        raise ValueError(f"{what} {text[:40]!r} is too large")
    return value
