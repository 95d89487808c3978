"""Sums that come out the same, to the last bit, in whatever order and pieces the numbers come."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.exact_sums import ADD_NUMBERS, INFINITE, LIMB_BITS, LIMBS, NOT_NUMBERS
from hpctwin.engine.job_figures import ADD_LABELLED
from hpctwin.model import Category

__all__ = ["ExactSum", "ExactSums"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_LEAST = 1074
"""The least double is 2 to minus this."""


class ExactSum:
    """A sum without rounding, which is rounded once, when it is asked for."""

    def __init__(self) -> None:
        self._limbs = np.zeros(LIMBS, np.int64)

    def add(self, values: FloatArray) -> None:
        """Some more numbers [n]."""
        ADD_NUMBERS(_bits(values), np.array([len(values)]), self._limbs)

    def total(self) -> float:
        """The double next to the sum."""
        return self.over(1)

    def over(self, count: int) -> float:
        """The double next to the sum divided by a number, 1 or more."""
        return _over(_sums(self._limbs[None])[0], count)


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
        ADD_NUMBERS(_bits(each), np.cumsum(counts), part)
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
        rows = [row.setdefault(label, len(row)) for label in labels]
        more = len(row) - len(self._counts)
        self._limbs = np.pad(self._limbs, ((0, more), (0, 0)))
        self._counts = np.pad(self._counts, (0, more))
        # What is added is carried: limbs have room for two thousand million windows.
        self._limbs[rows] += part
        self._counts[rows] += counts

    def means(self) -> list[float]:
        """Of each label, in the order in which they came."""
        pairs = zip(_sums(self._limbs), self._counts.tolist(), strict=True)
        return [_over(whole, count) for whole, count in pairs]


def _bits(values: FloatArray) -> IntArray:
    return np.require(values, np.float64, ["C", "W"]).view(np.int64)


def _sums(limbs: IntArray) -> list[int | float]:
    """Each sum in units of the least double; infinite, or no number, where it is [sums, LIMBS]."""
    there = np.flatnonzero(limbs.any(axis=0)).tolist()
    if there and there[-1] >= INFINITE:
        return [_sum_of(row) for row in limbs.tolist()]
    shifts = [LIMB_BITS * place for place in there]
    rows = limbs[:, there].tolist()
    return [sum(one << by for one, by in zip(row, shifts, strict=True)) for row in rows]


def _sum_of(limbs: list[int]) -> int | float:
    if limbs[NOT_NUMBERS]:
        return math.nan
    if limbs[INFINITE]:
        return math.copysign(math.inf, limbs[INFINITE])
    return sum(one << LIMB_BITS * place for place, one in enumerate(limbs))


def _over(whole: float, count: int) -> float:
    """A sum divided by a number, rounded once."""
    if isinstance(whole, float):
        return whole
    try:
        return whole / (count << _LEAST)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf
