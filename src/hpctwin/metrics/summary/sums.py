"""Sums that are equal to the last bit, whatever the order and grouping of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.summary.exact_sums import ADD_NUMBERS, INFINITE, LIMB_BITS, LIMBS, NOT_NUMBERS
from hpctwin.engine.summary.job_figures import ADD_LABELLED
from hpctwin.model import Category

__all__ = ["ExactSum", "ExactSums"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_FIRST = np.zeros(1, np.int64)
_LEAST = 1074
"""Exponent of the least double: 2 to minus this."""


class ExactSum:
    """A sum without rounding, which is rounded once, when it is read."""

    def __init__(self) -> None:
        self._limbs = np.zeros(LIMBS, np.int64)

    def add(self, values: FloatArray) -> None:
        """Add numbers [n]."""
        ADD_NUMBERS(_bits(values), _FIRST, np.array([len(values)]), self._limbs)

    def total(self) -> float:
        """Return the double nearest to the sum."""
        return self.over(1)

    def over(self, count: int) -> float:
        """Return the double nearest to the sum divided by a number, 1 or more."""
        return _each_over(self._limbs[None], [count])[0]


class ExactSums:
    """Sums and counts of values by label."""

    def __init__(self) -> None:
        self._row: dict[str, int] = {}
        self._limbs = np.zeros((0, LIMBS), np.int64)
        self._counts = np.zeros(0, np.int64)

    def add(self, labels: pl.Series, values: FloatArray) -> None:
        """Add values, each with its label; values with a null label are ignored [n]."""
        told = pl.DataFrame({"label": labels, "value": pl.Series(values)}).drop_nulls("label")
        found = told.group_by("label").agg("value")
        counts = found["value"].list.len().to_numpy().astype(np.int64)
        part = np.zeros(len(found) * LIMBS, np.int64)
        each = found["value"].explode().to_numpy()
        ends = np.cumsum(counts)
        ADD_NUMBERS(_bits(each), ends - counts, ends, part)
        self._add_parts(found["label"].to_list(), part.reshape(-1, LIMBS), counts)

    def add_codes(self, labels: Category, values: FloatArray) -> None:
        """Like `add`, for a column of labels."""
        limbs = np.zeros(len(labels.labels) * LIMBS, np.int64)
        counts = np.zeros(len(labels.labels), np.int64)
        ADD_LABELLED(_bits(values), labels.codes, limbs, counts)
        there = np.flatnonzero(counts)
        part = limbs.reshape(-1, LIMBS)[there]
        self._add_parts([labels.labels[code] for code in there], part, counts[there])

    def _add_parts(self, labels: Sequence[str], part: IntArray, counts: IntArray) -> None:
        row = self._row
        if not row:
            self._row = {label: number for number, label in enumerate(labels)}
            self._limbs, self._counts = part, counts
            return
        rows = [row.setdefault(label, len(row)) for label in labels]
        more = len(row) - len(self._counts)
        self._limbs = np.concatenate([self._limbs, np.zeros((more, LIMBS), np.int64)])
        self._counts = np.concatenate([self._counts, np.zeros(more, np.int64)])
        # Added sums are carried, so limbs have space for two thousand million windows.
        self._limbs[rows] += part
        self._counts[rows] += counts

    def means(self) -> list[float]:
        """Return the mean of each label, in the order of first appearance."""
        return _each_over(self._limbs, self._counts.tolist())


def _bits(values: FloatArray) -> IntArray:
    return np.require(values, np.float64, ["C", "W"]).view(np.int64)


def _each_over(limbs: IntArray, counts: Sequence[int]) -> list[float]:
    """Return sums, each divided by a number and rounded once [sums, LIMBS].

    A quotient is infinite or NaN if its sum is.
    """
    there = np.flatnonzero(limbs.any(axis=0)).tolist()
    if not there:
        return [0.0] * len(limbs)
    if there[-1] >= INFINITE:
        return [_over(*pair) for pair in zip(limbs.tolist(), counts, strict=True)]
    # Lower limbs are all zero: in units of the first other limb, numbers are short.
    rows, below = limbs[:, there[0] : there[-1] + 1].tolist(), there[0]
    return [_finite_over(row, below, count) for row, count in zip(rows, counts, strict=True)]


def _over(limbs: list[int], count: int) -> float:
    if limbs[NOT_NUMBERS]:
        return math.nan
    if limbs[INFINITE]:
        return math.copysign(math.inf, limbs[INFINITE])
    return _finite_over(limbs, 0, count)


def _finite_over(limbs: list[int], below: int, count: int) -> float:
    """Return a sum divided by a number, rounded once.

    ``below`` is the number of zero limbs below the given ones.
    """
    whole = 0
    for limb in reversed(limbs):
        whole = (whole << LIMB_BITS) + limb
    shift = LIMB_BITS * below - _LEAST
    try:
        return (whole << shift) / count if shift > 0 else whole / (count << -shift)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf
