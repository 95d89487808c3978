"""Where a start came to lie in what had been foretold of it: a number from 0 to 1, seldom above.

Starts are compared by it (distributional conformal prediction; Chernozhukov, Wüthrich, Zhu 2021): it means
the same for who waits minutes and for who waits days, and what was learnt of one makes no interval of the
other endless.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["knots", "place", "times"]

FloatArray = npt.NDArray[np.float64]

PLACES = np.array([0.0, 0.1, 0.5, 0.9, 1.0])
"""Of the present, a tenth, half and nine tenths of the futures, and the last start there is."""

_APART_S, _APART = 60.0, 0.1
"""Futures that agree are set apart by so much from the first to the last, seconds and of the longest wait:
few are drawn, and a start is later than all of them more often than in one of so many."""
_BEYOND_S = 3600.0
"""A start so much later than the last is one above it."""


def knots(
    now_s: float, early_s: FloatArray, middle_s: FloatArray, late_s: FloatArray, last_s: FloatArray
) -> FloatArray:
    """The times that have the places `PLACES`, seconds [jobs, 5].

    Args:
        now_s: the present.
        early_s: by when a job has started in a tenth of the futures [jobs].
        middle_s: in half of them.
        late_s: in nine tenths.
        last_s: when it starts if all run to their walltimes, at least `late_s` [jobs].
    """
    apart = _APART_S + _APART * (last_s - now_s)
    found = np.column_stack(
        [
            np.full(len(last_s), now_s),
            early_s - 0.4 * apart,
            middle_s,
            late_s + 0.4 * apart,
            last_s + 0.5 * apart,
        ]
    )
    rising: FloatArray = np.maximum.accumulate(found, axis=1)
    return rising


def times(of: FloatArray, there: FloatArray) -> FloatArray:
    """When jobs start whose starts have these places, seconds [jobs].

    Args:
        of: their knots [jobs, 5].
        there: the places [jobs].
    """
    left = np.clip(np.searchsorted(PLACES, there, "right") - 1, 0, len(PLACES) - 2)
    share = np.clip((there - PLACES[left]) / np.diff(PLACES)[left], 0.0, 1.0)
    rows = np.arange(len(of))
    before = of[rows, left]
    beyond_s = np.maximum(there - 1.0, 0.0) * _BEYOND_S
    found: FloatArray = before + share * (of[rows, left + 1] - before) + beyond_s
    return found


def place(of: FloatArray, start_s: float) -> float:
    """The place of a start.

    Args:
        of: the job's knots [5].
        start_s: when it started, seconds.
    """
    if start_s > of[-1]:
        return 1.0 + float(start_s - of[-1]) / _BEYOND_S
    return float(np.interp(start_s, of, PLACES))
