"""What was known of like jobs when each job was submitted: only of those that had ended by then."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["History", "group_of"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_FINE = float(2**20)
"""Sums are of whole multiples of 2^-20, so that a value that comes later cannot even change a rounding."""


class History:
    """The jobs of each group in the order in which they ended, as each job finds them at its submission.

    Args:
        group: of each job, 0 or more [jobs].
        submit_ms: when each job is submitted [jobs].
        end_ms: when each job has ended, so that its figures are known [jobs].
    """

    def __init__(self, group: IntArray, submit_ms: IntArray, end_ms: IntArray) -> None:
        rows = np.arange(len(group))
        # When a job ends after the last submission makes no difference, and keeps the numbers below small.
        end_ms = np.minimum(end_ms, submit_ms.max(initial=0) + 1)
        self.order = np.lexsort((rows, end_ms, group))
        # One number that grows with group, then end: a submission's place among them is found by bisection.
        first = min(int(end_ms.min(initial=0)), int(submit_ms.min(initial=0)))
        span = max(int(end_ms.max(initial=0)), int(submit_ms.max(initial=0))) - first + 1
        keys = (group * span + end_ms - first)[self.order]
        self.begin = np.searchsorted(keys, group * span, "left")
        self.upto = np.searchsorted(keys, group * span + submit_ms - first, "right")

    @property
    def count(self) -> IntArray:
        """How many of its group each job knows [jobs]."""
        return self.upto - self.begin

    def last(self, values: FloatArray, back: int = 1) -> FloatArray:
        """The value of the job of its group that ended last, or so many before; NaN where there is none.

        Args:
            values: of each job [jobs].
            back: 1 for the last.
        """
        place = self.upto - back
        found = values[self.order[np.maximum(place, 0)]] if len(values) else values
        return np.where(place >= self.begin, found, np.nan)

    def sum(self, values: FloatArray, last: int | None = None) -> FloatArray:
        """The sum over those of its group, to 2^-20 each; what is NaN counts 0.

        Args:
            values: of each job [jobs].
            last: only of so many that ended last.
        """
        whole = np.rint(np.nan_to_num(values, nan=0.0) * _FINE).astype(np.int64)
        sums = np.concatenate([[0], np.cumsum(whole[self.order])])
        begin = self.begin if last is None else np.maximum(self.begin, self.upto - last)
        total: FloatArray = (sums[self.upto] - sums[begin]) / _FINE
        return total

    def mean(self, values: FloatArray, last: int | None = None) -> FloatArray:
        """The mean over those of its group whose value is known; NaN where there is none."""
        known = self.sum((~np.isnan(values)).astype(np.float64), last)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(known > 0, self.sum(values, last) / known, np.nan)


def group_of(*columns: npt.NDArray[np.generic]) -> IntArray:
    """Which jobs are alike in all of some columns: a number for each, 0 or more [jobs]."""
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes = np.unique(column, return_inverse=True)[1].ravel()
        group = group * (int(codes.max(initial=0)) + 1) + codes
        group = np.unique(group, return_inverse=True)[1].ravel().astype(np.int64)
    return group
