"""Sums are exact, in whatever order and pieces numbers come."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpctwin.metrics.sources import ExactSum, ExactSums

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
def test_a_sum_is_divided_as_exactly(values: list[float], count: int) -> None:
    exact = sum(map(Fraction, values), Fraction(0)) / count
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.copysign(math.inf, exact)
    assert summed(values, []).over(count) == expected


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_ratio_of_infinite_sums_is_none(value: float) -> None:
    found = summed([value, 1.0], []).over(3)
    assert found == value or np.isnan(found)
    assert np.isnan(found) == np.isnan(value)


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
def test_a_sum_that_is_not_finite_is_reported(values: list[float], total: float) -> None:
    assert summed(values, [1]).total() == pytest.approx(total, nan_ok=True)
