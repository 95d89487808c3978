"""Sums are exact, in whatever order and pieces numbers come."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numba import float64, int64, types

from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.summary.exact_sums import ADD_NUMBERS, LIMBS, rounded_over
from hpctwin.metrics.summary.sums import ExactSum, ExactSums, RowSums

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1e7, 1e7),
    st.integers(0, 10**7).map(float),
    st.sampled_from([0.0, -0.0, 5e-324, 2.0**-1022, 1.7e308]),
)


def summed(values: list[float], cuts: list[int]) -> ExactSum:
    found = ExactSum()
    for part in np.split(np.array(values), sorted(cuts)):
        found.add(part)
    return found


@given(st.lists(NUMBERS, max_size=60), st.integers(1, 30), st.data())
def test_a_sum_is_the_double_next_to_it_however_it_is_cut(
    values: list[float], times: int, data: st.DataObject
) -> None:
    """Also of more numbers than a block has."""
    many = data.draw(st.permutations(values)) * times
    cuts = data.draw(st.lists(st.integers(0, len(many)), max_size=5))
    exact = sum(map(Fraction, values), Fraction(0)) * times
    try:
        expected = [float(exact), float(exact / 7)]
    except OverflowError:
        return
    found = summed(many, cuts)
    assert [found.total(), found.over(7)] == expected


def _rounded(limbs: np.ndarray[Any, Any], count: int) -> float:
    return rounded_over(limbs, 0, count)


ROUNDED = Kernel(_rounded, float64(types.Array(int64, 1, "C"), int64))


@given(st.lists(NUMBERS, max_size=60), st.integers(1, 2**31 - 1))
@example([2.0**53, 1.0], 1)  # half way between two doubles: to the even one, …
@example([2.0**53, 3.0], 1)
@example([2.0**53, 1.0, 2.0**-20], 1)  # … and a little above half way
@example([2.0**53, 1.0, 2.0**-1000], 1)
@example([-(2.0**53), -1.0, -(2.0**-1000)], 1)
@example([2.0**54, 2.0, 1.0], 2)
@example([5e-324], 2)
@example([1.5e-323], 2)
@example([5e-324], 3)
@example([1e-323], 3)
def test_compiled_code_divides_a_sum_as_exactly(values: list[float], count: int) -> None:
    exact = sum(map(Fraction, values), Fraction(0)) / count
    limbs = np.zeros(LIMBS, np.int64)
    first, last = np.zeros(1, np.int64), np.array([len(values)])
    ADD_NUMBERS(np.array(values).view(np.int64), first, last, limbs)
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.copysign(math.inf, exact)
    assert ROUNDED(limbs, count) == expected


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_compiled_code_tells_what_is_no_finite_sum(value: float) -> None:
    limbs = np.zeros(LIMBS, np.int64)
    first, last = np.zeros(1, np.int64), np.array([2])
    ADD_NUMBERS(np.array([value, 1.0]).view(np.int64), first, last, limbs)
    assert ROUNDED(limbs, 3) == value or np.isnan(value)
    assert np.isnan(ROUNDED(limbs, 3)) == np.isnan(value)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), NUMBERS)), st.integers(0, 9))
def test_means_by_label_are_those_of_each_alone(
    pairs: list[tuple[str | None, float]], cut: int
) -> None:
    found = ExactSums()
    for part in (pairs[:cut], pairs[cut:]):
        labels = pl.Series([label for label, _ in part], dtype=pl.String)
        found.add(labels, np.array([value for _, value in part], np.float64))
    expected = []
    for label in dict.fromkeys(label for label, _ in pairs if label is not None):
        own = [value for other, value in pairs if other == label]
        expected.append(summed(own, []).over(len(own)))
    assert sorted(found.means()) == sorted(expected)


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([1.0, math.inf], math.inf),
        ([1.0, -math.inf], -math.inf),
        ([1.0, math.nan, math.inf], math.nan),
        ([1.7e308, 1.7e308], math.inf),
        ([-1.7e308, -1.7e308], -math.inf),
        ([], 0.0),
    ],
)
def test_what_has_no_finite_sum_is_said(values: list[float], total: float) -> None:
    assert summed(values, [1]).total() == pytest.approx(total, nan_ok=True)


@given(
    st.lists(
        st.lists(NUMBERS | st.sampled_from([math.inf, -math.inf]), max_size=20),
        min_size=3,
        max_size=3,
    ),
    st.integers(1, 60),
    st.lists(st.integers(0, 20), min_size=3, max_size=3),
)
def test_rows_in_pieces_are_summed_as_each_alone(
    rows: list[list[float]], times: int, cuts: list[int]
) -> None:
    """Also of more numbers than a block has."""
    found, many = RowSums(3), [row * times for row in rows]
    for part in (slice(0, 1), slice(1, None)):
        pieces = [
            row[:cut] if part.start == 0 else row[cut:] for row, cut in zip(many, cuts, strict=True)
        ]
        table = np.full(
            (3, max(map(len, pieces)) + 2), 7.5
        )  # behind its end a row may hold anything
        for own, piece in zip(table, pieces, strict=True):
            own[: len(piece)] = piece
        found.add(table, np.array([len(piece) for piece in pieces]))
    assert found.counts == [len(row) for row in many]
    assert found.largest == [max(row, default=-math.inf) for row in many]
    np.testing.assert_array_equal(
        found.over([1, 2, 3]), [summed(row, []).over(n) for n, row in enumerate(many, 1)]
    )
