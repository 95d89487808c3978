from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.errors import ConfigError
from hpctwin.metrics import mean_interval, min_sample_size, paired_change, paired_differences
from hpctwin.metrics.comparison import _student

# Student's t, two-sided 95 %, from printed tables.
PRINTED = {5: 2.571, 7: 2.365, 9: 2.262, 14: 2.145, 19: 2.093, 29: 2.045, 120: 1.980}


@pytest.mark.parametrize("freedom", PRINTED)
def test_students_t_is_that_of_printed_tables(freedom: int) -> None:
    assert _student(0.95, freedom) == pytest.approx(PRINTED[freedom], abs=1.5e-3)


def test_an_interval_of_normal_values_is_about_as_wide_as_students() -> None:
    values = np.random.default_rng(3).normal(5, 2, 12)
    found = mean_interval(values)
    half = 2.201 * values.std(ddof=1) / math.sqrt(12)
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.1 * half)


@pytest.mark.parametrize("count", [6, 10, 30])
def test_95_of_100_intervals_of_normal_values_hold_the_truth(count: int) -> None:
    random = np.random.default_rng(count)
    held = 0
    for _ in range(400):
        found = mean_interval(random.normal(1, 3, count), resamples=1500)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1 <= found.high
    assert 0.91 <= held / 400 <= 0.985


@pytest.mark.parametrize(("level", "count"), [(0.95, 6), (0.9, 5), (0.5, 2), (0.99, 8)])
def test_fewer_values_than_could_hold_the_truth_have_no_interval(level: float, count: int) -> None:
    assert min_sample_size(level) == count
    assert 2.0 ** (1 - count) <= 1 - level + 1e-12 < 2.0 ** (2 - count)
    few = mean_interval(np.arange(count - 1), level=level)
    assert (few.low, few.high) == (None, None)
    assert mean_interval(np.arange(count), level=level).low is not None


@given(st.lists(st.floats(-1e9, 1e9), min_size=6, max_size=30), st.randoms())
def test_an_interval_is_within_the_range_around_the_mean_for_any_order_of_values(
    values: list[float], random
) -> None:
    found = mean_interval(values, resamples=300)
    slack = 1e-9 * (1 + max(map(abs, values)))
    assert found.low is not None
    assert found.high is not None
    assert min(values) - slack <= found.low <= found.high <= max(values) + slack
    random.shuffle(values)
    assert mean_interval(values, resamples=300) == found


def test_values_that_are_all_equal_have_an_interval_of_no_length() -> None:
    assert mean_interval([7.0] * 9) == (7, 7, 7)


@pytest.mark.parametrize("values", [[], [1, math.nan], [math.inf]])
def test_an_interval_wants_finite_values(values: list[float]) -> None:
    with pytest.raises(ConfigError, match="finite"):
        mean_interval(values)


@pytest.mark.parametrize("level", [0, 1, 95, math.nan])
def test_a_level_is_a_share(level: float) -> None:
    with pytest.raises(ConfigError, match=r"such as 0\.95"):
        mean_interval([1, 2], level=level)


def runs(before: list[float | None], after: list[float | None]) -> list[dict[str, dict]]:
    return [
        {"a": {"policy": "a", "wait": one}, "b": {"policy": "b", "wait": other, "late": 1}}
        for one, other in zip(before, after, strict=True)
    ]


def test_common_differences_of_workloads_cancel_in_paired_differences() -> None:
    between = [10.0 * 3**k for k in range(8)]
    better = [value - 2 - 0.1 * (k % 3) for k, value in enumerate(between)]
    (row,) = paired_differences(runs(between, better), ["wait"]).to_dicts()
    assert (row["policy"], row["against"], row["metric"], row["pairs"]) == ("b", "a", "wait", 8)
    assert (row["lower"], row["higher"]) == (8, 0)
    assert row["before"] == pytest.approx(np.mean(between))
    assert row["difference"] == pytest.approx(row["after"] - row["before"])
    assert -2.3 < row["low"] < row["difference"] < row["high"] < -1.9
    ratios = np.array(better) / np.array(between)
    assert row["ratio"] == pytest.approx(np.exp(np.log(ratios).mean()))
    assert 0 < row["ratio_low"] < row["ratio"] < row["ratio_high"] < 1


def test_a_ratio_is_a_geometric_mean_and_its_interval_stays_above_zero() -> None:
    """The differences of these values have an interval that reaches below minus the mean."""
    before = np.array([10.0, 20, 15, 12, 2000, 18, 11])
    after = before * np.array([0.1, 0.05, 0.2, 0.1, 0.01, 0.3, 0.1])
    change = paired_change(before, after)
    assert change.difference.low is not None
    assert change.difference.low < -before.mean()
    logs = mean_interval(np.log(after / before))
    assert change.ratio == pytest.approx(np.exp(logs))
    assert 0 < change.ratio[1] < change.ratio[0] < change.ratio[2] < 1
    back = paired_change(after, before)
    assert back.ratio[0] == pytest.approx(1 / change.ratio[0])
    assert (back.lower, back.higher) == (0, 7)


@pytest.mark.parametrize("zero", [0.0, -1.0])
def test_without_ratios_only_the_difference_is_known(zero: float) -> None:
    change = paired_change([1, 2, 3, 4, 5, zero], [2, 3, 4, 5, 6, 7])
    assert change.ratio == (None, None, None)
    assert change.difference.low is not None
    assert paired_change([1, 2], [2, 4]).ratio == (pytest.approx(2.0), None, None)


def test_a_workload_on_which_one_has_no_figure_is_no_pair() -> None:
    table = paired_differences(runs([1, None, 3, 4], [2, 3, None, 4]))
    (row,) = table.to_dicts()
    assert row["metric"] == "wait"
    assert (row["pairs"], row["difference"], row["low"]) == (2, 0.5, None)


@pytest.mark.parametrize("given", [[], [{}], [{"a": {}, "b": {}}, {"a": {}, "c": {}}]], ids=str)
def test_differences_are_of_the_same_policies_in_each_run(given: list[dict[str, dict]]) -> None:
    with pytest.raises(ConfigError, match="compare policies; each run must have the same policies"):
        paired_differences(given)
