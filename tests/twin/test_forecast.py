"""Forecasts, their intervals, and what is said of their accuracy."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hpctwin.rms.records import JobRecord, JobSpec
from hpctwin.twin.accuracy import accuracy
from hpctwin.twin.forecast import COVERAGE, ENOUGH, Forecast, Forecaster


def job(job_id: str) -> JobRecord:
    return JobRecord(spec=JobSpec(id=job_id, submit_s=0, nodes=1, walltime_s=60))


def test_with_little_experience_the_interval_reaches_from_now_to_twice_the_wait() -> None:
    (said,) = Forecaster().forecast([job("1")], {"1": 400.0}, 100.0)
    assert (said.low_s, said.start_s, said.high_s, said.calibrated) == (100.0, 400.0, 700.0, False)


def test_a_job_that_would_never_start_has_no_forecast() -> None:
    (said,) = Forecaster().forecast([job("1")], {}, 100.0)
    assert said.start_s is said.low_s is said.high_s is None


def test_intervals_learn_to_cover_as_many_starts_as_they_promise() -> None:
    rng = np.random.default_rng(1)
    forecaster = Forecaster()
    inside = []
    for number in range(2000):
        name = str(number)
        wait_s = float(rng.uniform(700, 3000))
        (said,) = forecaster.forecast([job(name)], {name: wait_s}, 0.0)
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
        (said,) = forecaster.forecast([job("1")], {"1": 1000.0}, float(now_s))
        if said.kept:
            kept.append(now_s)
    assert kept == [0, 500, 750, 900, 950]


def test_what_was_learnt_survives_saving_as_json() -> None:
    forecaster = Forecaster()
    for number in range(50):
        forecaster.forecast([job(str(number))], {str(number): 90.0}, 0.0)
        if number % 2:
            forecaster.came_true(str(number), 80.0 + number)
    again = Forecaster()
    again.restore(json.loads(json.dumps(forecaster.state())))
    assert again.state() == forecaster.state()
    assert again.interval(500.0, 400.0) == forecaster.interval(500.0, 400.0)
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
