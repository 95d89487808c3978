"""Sums that come out the same, to the last bit, in whatever order and pieces the numbers come."""

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
"""The least double is 2 to minus this."""


class ExactSum:
    """A sum without rounding, which is rounded once, when it is asked for."""

    def __init__(self) -> None:
        self._limbs = np.zeros(LIMBS, np.int64)

    def add(self, values: FloatArray) -> None:
        """Some more numbers [n]."""
        ADD_NUMBERS(_bits(values), _FIRST, np.array([len(values)]), self._limbs)

    def total(self) -> float:
        """The double next to the sum."""
        return self.over(1)

    def over(self, count: int) -> float:
        """The double next to the sum divided by a number, 1 or more."""
        return _each_over(self._limbs[None], [count])[0]


class ExactSums:
    """Sums and numbers of values by label."""

    def __init__(self) -> None:
        self._row: dict[str, int] = {}
        self._limbs = np.zeros((0, LIMBS), np.int64)
        self._counts = np.zeros(0, np.int64)

    def add(self, labels: pl.Series, values: FloatArray) -> None:
        """Some more values, each with its label; null for none of them [n]."""
        told = pl.DataFrame({"label": labels, "value": pl.Series(values)}).drop_nulls("label")
        found = told.group_by("label").agg("value")
        counts = found["value"].list.len().to_numpy().astype(np.int64)
        part = np.zeros(len(found) * LIMBS, np.int64)
        each = found["value"].explode().to_numpy()
        ends = np.cumsum(counts)
        ADD_NUMBERS(_bits(each), ends - counts, ends, part)
        self._add_parts(found["label"].to_list(), part.reshape(-1, LIMBS), counts)

    def add_codes(self, labels: Category, values: FloatArray) -> None:
        """As `add`, of a column of labels."""
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
        # What is added is carried: limbs have room for two thousand million windows.
        self._limbs[rows] += part
        self._counts[rows] += counts

    def means(self) -> list[float]:
        """Of each label, in the order in which they came."""
        return _each_over(self._limbs, self._counts.tolist())


def _bits(values: FloatArray) -> IntArray:
    return np.require(values, np.float64, ["C", "W"]).view(np.int64)


def _each_over(limbs: IntArray, counts: Sequence[int]) -> list[float]:
    """Sums, each divided by a number, rounded once; infinite, or no number, where it is [sums, LIMBS]."""
    there = np.flatnonzero(limbs.any(axis=0)).tolist()
    if not there:
        return [0.0] * len(limbs)
    if there[-1] >= INFINITE:
        return [_over(*pair) for pair in zip(limbs.tolist(), counts, strict=True)]
    # Nothing but zeros lies below: in units of what does not, numbers are short.
    rows, below = limbs[:, there[0] : there[-1] + 1].tolist(), there[0]
    return [_finite_over(row, below, count) for row, count in zip(rows, counts, strict=True)]


def _over(limbs: list[int], count: int) -> float:
    if limbs[NOT_NUMBERS]:
        return math.nan
    if limbs[INFINITE]:
        return math.copysign(math.inf, limbs[INFINITE])
    return _finite_over(limbs, 0, count)


def _finite_over(limbs: list[int], below: int, count: int) -> float:
    """A sum of limbs with so many zeros below them, divided by a number, rounded once."""
    whole = 0
    for limb in reversed(limbs):
        whole = (whole << LIMB_BITS) + limb
    shift = LIMB_BITS * below - _LEAST
    try:
        return (whole << shift) / count if shift > 0 else whole / (count << -shift)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf
