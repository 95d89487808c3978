"""Quantiles of many numbers: exact from all numbers, or approximate from counts."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hpctwin.engine.summary.job_figures import COUNT_LEADING, LEADING_BITS, TAKE_LEADING

__all__ = ["ERROR", "Exact", "Quantiles", "Sketch"]

FloatArray = npt.NDArray[np.float64]

_NO_COUNTS = np.zeros(1 << LEADING_BITS, np.int64)
_BITS = 12  # of the mantissa
_LEAST, _MOST = 2.0**-24, 2.0**63
_SHIFT = 52 - _BITS
ERROR = 2.0 ** -(_BITS + 1)
"""Maximum relative error of a quantile of a `Sketch` (0.012 %)."""


class Quantiles(Protocol):
    """Numbers, 0 or more, with their quantiles."""

    def add(self, values: FloatArray) -> None:
        """Add numbers."""
        ...

    def at(self, *shares: float) -> list[float | None]:
        """Return quantiles, interpolated linearly between neighbors; None without numbers."""
        ...


class Exact:
    """Exact quantiles; all numbers stay in memory."""

    def __init__(self) -> None:
        self._parts: list[FloatArray] = []

    def add(self, values: FloatArray) -> None:
        """Add numbers."""
        self._parts.append(values)

    def at(self, *shares: float) -> list[float | None]:
        """Return the quantiles."""
        values = self._parts[0] if len(self._parts) == 1 else np.concatenate([*self._parts, []])
        values = np.ascontiguousarray(values)
        self._parts = [values]
        if not len(values):
            return [None for _ in shares]
        places = [_place(share, len(values)) for share in shares]
        at = _by_rank(values, sorted({rank for low, high, _ in places for rank in (low, high)}))
        # Neighbors may both be infinite.
        return [
            at[low] if at[low] == at[high] else at[low] + (at[high] - at[low]) * part
            for low, high, part in places
        ]


class Sketch:
    """Approximate quantiles from counts in bins; the counts take 3 MB.

    A bin is as narrow as 2^-12 of its numbers. The bins follow the bits of the numbers, as in
    HdrHistogram (G. Tene, hdrhistogram.org). Numbers below 2^-24 count as 0. The packages for such
    sketches (hdrhistogram, ddsketch) take one number at a time.
    """

    def __init__(self) -> None:
        self._first = _bin(np.array([_LEAST]))[0]
        bins = int(_bin(np.array([_MOST]))[0] - self._first) + 2
        self._counts = np.zeros(bins, np.int64)

    def add(self, values: FloatArray) -> None:
        """Add numbers."""
        found = _bin(np.clip(values, 0.0, _MOST)) - (self._first - 1)
        counts = np.bincount(np.maximum(found, 0))
        self._counts[: len(counts)] += counts

    def at(self, *shares: float) -> list[float | None]:
        """Return the quantiles, with a relative error up to `ERROR`."""
        reached = np.cumsum(self._counts)
        if not reached[-1]:
            return [None for _ in shares]
        found: list[float | None] = []
        for share in shares:
            low, high, part = _place(share, int(reached[-1]))
            first, last = (
                self._middle(int(np.searchsorted(reached, rank, side="right")))
                for rank in (low, high)
            )
            found.append(first + (last - first) * part)
        return found

    def _middle(self, found: int) -> float:
        if found == 0:
            return 0.0
        edges = np.array([found, found + 1], np.int64) + (self._first - 1)
        low, high = (edges << _SHIFT).view(np.float64)
        return float((low + high) / 2)


def _by_rank(values: FloatArray, ranks: list[int]) -> dict[int, float]:
    """Return the numbers of given ranks.

    If there are many numbers, only those with the same leading bits are sorted.
    """
    if len(values) < len(_NO_COUNTS):
        values.partition(ranks)
        return {rank: float(values[rank]) for rank in ranks}
    counts = _NO_COUNTS.copy()
    COUNT_LEADING(values.view(np.int64), counts)
    reached = np.cumsum(counts)
    leading = np.searchsorted(reached, ranks, side="right")
    wanted = np.zeros(len(counts), np.bool_)
    wanted[leading] = True
    taken = np.empty(int(counts[wanted].sum()))
    TAKE_LEADING(values.view(np.int64), wanted, taken.view(np.int64))
    # This many numbers with other bits come before each.
    left_out = np.cumsum(np.where(wanted, 0, counts))[leading]
    places = [rank - int(before) for rank, before in zip(ranks, left_out, strict=True)]
    taken.partition(sorted(set(places)))
    return {rank: float(taken[place]) for rank, place in zip(ranks, places, strict=True)}


def _place(share: float, size: int) -> tuple[int, int, float]:
    """Return the two ranks next to a quantile of ``size`` numbers.

    The third number is the distance of the quantile to the first rank.
    """
    place = share * (size - 1)
    return math.floor(place), math.ceil(place), place - math.floor(place)


def _bin(values: FloatArray) -> npt.NDArray[np.int64]:
    """Return the leading bits of numbers, which increase with the numbers."""
    bits: npt.NDArray[np.int64] = np.ascontiguousarray(values).view(np.int64) >> _SHIFT
    return bits
