"""Forecasts, their intervals, and what is said of their accuracy."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.twin.forecast.accuracy import accuracy
from hpctwin.twin.forecast.forecaster import COVERAGE, ENOUGH, LEVELS, Forecast, Forecaster, to_keep


def test_with_little_experience_the_interval_reaches_from_now_to_twice_the_wait() -> None:
    (said,) = Forecaster().forecast({"1": 1}, {"1": 400.0}, 100.0)
    assert (said.low_s, said.start_s, said.high_s, said.calibrated) == (100.0, 400.0, 700.0, False)


def test_a_job_that_would_never_start_has_no_forecast() -> None:
    (said,) = Forecaster().forecast({"1": 1}, {}, 100.0)
    assert said.start_s is said.low_s is said.high_s is None


def test_intervals_learn_to_cover_as_many_starts_as_they_promise() -> None:
    rng = np.random.default_rng(1)
    forecaster = Forecaster()
    inside = []
    for number in range(2000):
        name = str(number)
        wait_s = float(rng.uniform(700, 3000))
        (said,) = forecaster.forecast({name: 1}, {name: wait_s}, 0.0)
        actual = wait_s * float(rng.uniform(0.3, 1.1))
        if said.calibrated:
            inside.append(said.low_s <= actual <= said.high_s)
        forecaster.came_true(name, actual)
    assert len(inside) == 2000 - ENOUGH
    assert np.mean(inside) == pytest.approx(COVERAGE, abs=0.03)


def test_a_forecast_is_kept_first_and_then_each_time_its_wait_has_halved() -> None:
    forecaster = Forecaster()
    kept = []
    for now_s in range(0, 1000, 50):
        (said,) = forecaster.forecast({"1": 1}, {"1": 1000.0}, float(now_s))
        if said.kept:
            kept.append(now_s)
    assert kept == [0, 500, 750, 900, 950]


def test_a_job_forecast_to_start_now_that_does_not_is_kept_once() -> None:
    forecaster = Forecaster()
    kept = [forecaster.forecast({"1": 1}, {"1": now}, now)[0].kept for now in (5.0, 6.0, 7.0)]
    assert kept == [True, False, False]


def test_a_forecast_is_the_median_of_the_futures_and_its_interval_grows_with_their_spread() -> None:
    forecaster = Forecaster()
    rng = np.random.default_rng(1)
    for number in range(300):
        name, spread = str(number), (10.0, 1000.0)[number % 2]
        drawn = {name: 5000.0 + spread * rng.normal(size=50)}
        (said,) = forecaster.forecast({name: 1}, {name: 5000.0}, 0.0, drawn)
        assert said.start_s == np.median(drawn[name])
        forecaster.came_true(name, 5000.0 + spread * float(rng.normal()))
    widths = []
    for spread in (10.0, 1000.0):
        drawn = {"x": 5000.0 + spread * np.linspace(-2, 2, 50)}
        (said,) = forecaster.preview({"x": 1}, {"x": 5000.0}, 0.0, drawn)
        widths.append((said.high_s or 0.0) - (said.low_s or 0.0))
    assert widths[1] > 1.5 * widths[0]


def test_futures_are_due_for_jobs_without_a_forecast_and_once_a_second() -> None:
    forecaster = Forecaster()
    waiting, drawn = {"1": 1, "2": 1}, {"1": np.array([40.0, 60.0])}
    assert forecaster.is_due({"1": 90.0}, 10.0)
    (said,) = forecaster.forecast({"1": 1}, {"1": 90.0}, 10.0, drawn)
    assert said.start_s == 50.0
    assert not forecaster.is_due({"1": 91.0}, 10.5)
    (again,) = forecaster.forecast({"1": 1}, {"1": 91.0}, 10.5, None)
    assert again == said._replace(kept=False)
    assert forecaster.is_due({"1": 90.0}, 11.0)
    assert forecaster.is_due({"1": 91.0, "2": 20.0}, 10.5)
    # Who starts at once needs no future, and is told so.
    assert not forecaster.is_due({"1": 10.6, "2": 10.6}, 10.6)
    assert [
        one.start_s for one in forecaster.forecast(waiting, {"1": 10.6, "2": 10.6}, 10.6, None)
    ] == [
        10.6,
        10.6,
    ]
    # One that was to start at once and does not after all is looked at anew.
    assert forecaster.is_due({"2": 90.0}, 10.7)


@pytest.mark.parametrize("size", [1, 16])
def test_each_class_of_sizes_is_covered_though_their_errors_differ(size: int) -> None:
    forecaster, inside = Forecaster(), []
    rng = np.random.default_rng(2)
    for number in range(2400):
        name, nodes = str(number), (1, 16)[number % 2]
        (said,) = forecaster.forecast({name: nodes}, {name: 1000.0}, 0.0)
        actual = 1000.0 * float(rng.uniform(0.9, 1.1) if nodes == 1 else rng.exponential(3.0))
        if said.calibrated and nodes == size:
            assert said.low_s is not None and said.high_s is not None  # noqa: PT018
            inside.append(said.low_s <= actual <= said.high_s)
        forecaster.came_true(name, actual)
    assert np.mean(inside) == pytest.approx(COVERAGE, abs=0.03)


def test_learned_values_survive_saving_as_json() -> None:
    forecaster = Forecaster()
    for number in range(50):
        forecaster.forecast({str(number): 1}, {str(number): 90.0}, 0.0)
        if number % 2:
            forecaster.came_true(str(number), 80.0 + number)
    again = Forecaster()
    again.restore(json.loads(json.dumps(forecaster.state())))
    assert again.state() == forecaster.state()
    (said,) = forecaster.preview({"x": 1}, {"x": 500.0}, 400.0)
    assert again.preview({"x": 1}, {"x": 500.0}, 400.0) == [said]
    assert said.calibrated
    assert len(again.quantiles(said)) == len(LEVELS)
    assert again.quantiles(said) == tuple(sorted(forecaster.quantiles(said)))
    assert again.median_error == forecaster.median_error


def test_accuracy_counts_errors_and_coverage_by_the_wait_forecast() -> None:
    said = [
        (Forecast("a", 0.0, 30.0, 0.0, 60.0, True, True), 50.0),
        (Forecast("b", 0.0, 120.0, 100.0, 140.0, True, True), 90.0),
        (Forecast("c", 0.0, 120.0, 0.0, 240.0, False, True), 120.0),
        (Forecast("d", 0.0, 120.0, 0.0, 240.0, False, True), None),
        (Forecast("e", 0.0, None, None, None, False, True), 10.0),
    ]
    rows = {row.label: row for row in accuracy(said)}
    assert rows["all"].forecasts == 3
    assert rows["all"].median_error_s == 20.0
    assert rows["all"].covered == 0.5
    assert rows["0 to 1 min"].bias_s == 20.0
    assert rows["1 min to 10 min"].bias_s == -15.0
    assert rows["above 1 d"].median_error_s is None


def test_accuracy_is_reported_by_size_and_by_week() -> None:
    week = 7 * 86_400.0
    said = [
        (Forecast("a", 0.0, 30.0, 0.0, 60.0, True, True, nodes=1), 50.0),
        (Forecast("b", week, week + 30.0, week, week + 40.0, True, True, nodes=6), week + 60.0),
    ]
    sizes = {row.label: row for row in accuracy(said, "size")}
    assert list(sizes) == ["all", "1", "5–8"]
    assert (sizes["1"].covered, sizes["5–8"].covered) == (1.0, 0.0)
    assert sizes["1"].within_1min == 1.0
    weeks = {row.label: row.width_s for row in accuracy(said, "week")}
    assert weeks == {"all": 50.0, "1970-01-01": 60.0, "1970-01-08": 40.0}
    assert [row.label for row in accuracy([], "size")] == ["all"]


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abcde"), st.integers(0, 300), max_size=5),
            st.booleans(),
            st.sets(st.sampled_from("abcde")),
        ),
        max_size=8,
    )
)
def test_read_forecasts_equal_unread_ones_and_change_no_learning(
    looks: list[tuple[dict[str, int], bool, set[str]]],
) -> None:
    read, unread = Forecaster(), Forecaster()
    now_s = 0.0
    for starts, again, started in looks:
        now_s += 20.0
        waiting = {job_id: len(job_id) + ord(job_id) % 5 for job_id in "abcde"}
        start_s = {job_id: now_s + wait_s for job_id, wait_s in starts.items()}
        drawn = None if again else {}
        assert read.is_due(start_s, now_s) == unread.is_due(start_s, now_s)
        said = list(read.forecast(waiting, start_s, now_s, drawn))
        other = unread.forecast(waiting, start_s, now_s, drawn)
        assert to_keep(other) == [one for one in said if one.kept]
        for job_id in started:
            for forecaster in (read, unread):
                forecaster.came_true(job_id, now_s)
    assert read.state() == unread.state()


def test_only_kept_forecasts_are_made_if_none_are_read() -> None:
    forecaster = Forecaster()
    waiting, start_s = {"a": 1, "b": 2}, {"a": 100.0, "b": 500.0}
    first, later = (forecaster.forecast(waiting, start_s, now_s) for now_s in (0.0, 1.0))
    assert [one.job_id for one in to_keep(first)] == ["a", "b"]
    assert to_keep(later) == []
    assert forecaster.is_due({"a": 100.0, "c": 300.0}, 1.0)
    assert not forecaster.is_due(start_s, 1.0)
    assert all("rows" not in vars(said) for said in (first, later))
    assert later == tuple(later) != first
    assert later[1].start_s == 500.0


def test_one_that_should_have_started_is_predicted_again_and_the_same_is_reported_from_then_on() -> (
    None
):
    forecaster = Forecaster()
    forecaster.forecast({"a": 1}, {"a": 100.5}, 100.0)
    late, again = (
        forecaster.forecast({"a": 1}, {"a": at_s}, now_s, None)
        for at_s, now_s in ((105.0, 100.6), (109.0, 100.8))
    )
    assert (late[0].start_s, again[0].start_s) == (105.0, 105.0)
