"""Place of an actual start in its forecast distribution: 0 to 1, rarely above.

Starts of different jobs are compared by their places (distributional conformal prediction;
Chernozhukov, Wüthrich, Zhu 2021). A place means the same for a wait of minutes and for a wait of
days. Errors of long waits therefore do not make the intervals of short ones endless.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["knots", "place", "times"]

FloatArray = npt.NDArray[np.float64]

PLACES = np.array([0.0, 0.1, 0.5, 0.9, 1.0])
"""Places of now, of 10 %, 50 % and 90 % of the futures, and of the last start."""

_APART_S, _APART = 60.0, 0.1
"""Minimum spread of the futures, in seconds and as a share of the longest wait.

It is added to the spread that was drawn, because only few futures are drawn. A start is later than
all N of them more often than in one case of N.
"""
_BEYOND_S = 3600.0
"""Delay after the last possible start that adds 1 to the place, in seconds."""


def knots(
    now_s: float, early_s: FloatArray, middle_s: FloatArray, late_s: FloatArray, last_s: FloatArray
) -> FloatArray:
    """Return the times at the places `PLACES` of each job, in seconds [jobs, 5].

    Args:
        now_s: The present, in seconds.
        early_s: Time by which a job has started in 10 % of the futures, in seconds [jobs].
        middle_s: The same for 50 % of the futures [jobs].
        late_s: The same for 90 % of the futures [jobs].
        last_s: Start if all jobs run to their walltimes, at least ``late_s``, in seconds [jobs].
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
    """Return the start times at given places, in seconds [jobs].

    Args:
        of: Knots of each job, in seconds [jobs, 5].
        there: Place of each job [jobs].
    """
    left = np.clip(np.searchsorted(PLACES, there, "right") - 1, 0, len(PLACES) - 2)
    share = np.clip((there - PLACES[left]) / np.diff(PLACES)[left], 0.0, 1.0)
    rows = np.arange(len(of))
    before = of[rows, left]
    beyond_s = np.maximum(there - 1.0, 0.0) * _BEYOND_S
    found: FloatArray = before + share * (of[rows, left + 1] - before) + beyond_s
    return found


def place(of: FloatArray, start_s: float) -> float:
    """Return the place of a start.

    Args:
        of: Knots of the job, in seconds [5].
        start_s: Actual start, in seconds.
    """
    if start_s > of[-1]:
        return 1.0 + float(start_s - of[-1]) / _BEYOND_S
    return float(np.interp(start_s, of, PLACES))
