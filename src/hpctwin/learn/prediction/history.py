"""History of similar jobs as known at each submission: only jobs that had ended."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["History", "group_of"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_FINE = float(2**20)
"""Sums count multiples of 2^-20, so that a later value cannot change a rounding."""


class History:
    """Jobs of each group in order of their end, as known at each job's submission.

    Args:
        group: Group of each job, 0 or more [jobs].
        submit_ms: Submit time of each job, in ms [jobs].
        end_ms: Time at which each job ended and its values became known, in ms [jobs].
    """

    def __init__(self, group: IntArray, submit_ms: IntArray, end_ms: IntArray) -> None:
        rows = np.arange(len(group))
        # The exact end of a job after the last submission does not matter; a bound keeps the keys
        # below small.
        end_ms = np.minimum(end_ms, submit_ms.max(initial=0) + 1)
        self.order = np.lexsort((rows, end_ms, group))
        # One key that increases with group, then end: bisection gives the position of a submission.
        first = min(int(end_ms.min(initial=0)), int(submit_ms.min(initial=0)))
        span = max(int(end_ms.max(initial=0)), int(submit_ms.max(initial=0))) - first + 1
        keys = (group * span + end_ms - first)[self.order]
        self.begin = np.searchsorted(keys, group * span, "left")
        self.upto = np.searchsorted(keys, group * span + submit_ms - first, "right")

    @property
    def count(self) -> IntArray:
        """Number of ended jobs of its group that each job knows [jobs]."""
        return self.upto - self.begin

    def last(self, values: FloatArray, back: int = 1) -> FloatArray:
        """Return the value of the last ended job of the group, or of an earlier one.

        It is NaN if there is none.

        Args:
            values: Value of each job [jobs].
            back: 1 for the last, 2 for the one before, …
        """
        place = self.upto - back
        found = values[self.order[np.maximum(place, 0)]] if len(values) else values
        return np.where(place >= self.begin, found, np.nan)

    def sum(self, values: FloatArray, last: int | None = None) -> FloatArray:
        """Return the sum over the ended jobs of the group.

        Each value is rounded to a multiple of 2^-20; NaN counts as 0.

        Args:
            values: Value of each job [jobs].
            last: Number of last ended jobs that count; by default all.
        """
        whole = np.rint(np.nan_to_num(values, nan=0.0) * _FINE).astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(whole[self.order])])
        begin = self.begin if last is None else np.maximum(self.begin, self.upto - last)
        total: FloatArray = (sums[self.upto] - sums[begin]) / _FINE
        return total

    def mean(self, values: FloatArray, last: int | None = None) -> FloatArray:
        """Return the mean over ended jobs of the group with a known value; NaN if none."""
        known = self.sum((~np.isnan(values)).astype(np.float64), last)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(known > 0, self.sum(values, last) / known, np.nan)


def group_of(*columns: npt.NDArray[np.generic]) -> IntArray:
    """Return a group number for each job; jobs equal in all columns share it [jobs]."""
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes = np.unique(column, return_inverse=True)[1].ravel()
        group = group * (int(codes.max(initial=0)) + 1) + codes
        group = np.unique(group, return_inverse=True)[1].ravel().astype(np.int64)
    return group
