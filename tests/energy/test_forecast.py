"""Jobs that may wait, by what is known of a price or a carbon intensity then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.cli import main
from hpctwin.energy import Series, cheapest_start_times
from hpctwin.energy.prices.forecast import (
    erring,
    forecast_start_times,
    from_past,
    parse_forecast,
    saving,
)
from hpctwin.errors import ConfigError
from tests.engine.examples import examples

HOUR = 3600.0
DAYS = 12


def drawn(seed: int) -> Series:
    rng = np.random.default_rng(seed)
    day = np.tile(200 + 100 * np.sin(np.arange(24) / 24 * 2 * np.pi), DAYS)
    return Series.hourly(np.round(day + rng.normal(0, 30, len(day)), 1), "g")


def some_jobs(seed: int, jobs: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.uniform(0, 9 * 24 * HOUR, jobs))
    return submit, rng.uniform(60, 20 * HOUR, jobs), rng.choice([0.0, 2.5 * HOUR, 24 * HOUR], jobs)


@settings(max_examples=examples(12))
@given(st.integers(0, 10_000), st.sampled_from(["past", "5%"]))
def test_jobs_begin_within_their_bounds_and_never_cheaper_than_the_oracle(
    seed: int, text: str
) -> None:
    series, (submit, length, wait) = drawn(seed), some_jobs(seed)
    forecast = parse_forecast(text, series)
    assert forecast is not None
    begins = forecast_start_times(submit, length, wait, series, forecast)
    assert (begins >= submit).all()
    assert (begins <= submit + wait).all()
    oracle = cheapest_start_times(submit, length, wait, series)
    each = np.ones(len(submit))
    assert (
        saving(begins, submit, length, each, series)
        <= saving(oracle, submit, length, each, series) + 1e-12
    )


@settings(max_examples=examples(12))
@given(st.integers(0, 10_000))
def test_with_a_forecast_that_does_not_err_jobs_cost_what_the_oracle_s_do(seed: int) -> None:
    series, (submit, length, wait) = drawn(seed), some_jobs(seed)
    begins = forecast_start_times(submit, length, wait, series, erring(series, 0.0))
    oracle = cheapest_start_times(submit, length, wait, series)
    ours, best = (series.integral(b + length) - series.integral(b) for b in (begins, oracle))
    np.testing.assert_allclose(ours, best, rtol=1e-9)


@settings(max_examples=examples(12))
@given(st.integers(0, 10_000), st.integers(24, 8 * 24))
def test_later_jobs_change_no_earlier_decision(seed: int, hour: int) -> None:
    series, (submit, length, wait) = drawn(seed), some_jobs(seed)
    other = series.values.copy()
    other[hour:] = other[hour:][::-1] * 3
    changed = Series(series.times_s, other, series.period_s, "g")
    begins = forecast_start_times(submit, length, wait, series, from_past(series))
    again = forecast_start_times(submit, length, wait, changed, from_past(changed))
    before = begins < hour * HOUR
    np.testing.assert_array_equal(again[before], begins[before])
    assert (again[~before] >= hour * HOUR).all()


def test_a_forecaster_s_error_is_what_was_asked_for_and_none_in_the_present() -> None:
    series = Series.hourly(np.full(48, 100.0), "g")
    forecast = erring(series, 0.05, seed=3)
    errors = np.array([np.abs(forecast(i, 600) / series.values[0] - 1) for i in range(300)])
    assert (errors[:, 0] == 0).all()
    assert errors[:, 100:].mean() == pytest.approx(0.05, rel=0.05)
    assert errors[:, 1].mean() < 0.03


@settings(max_examples=examples(12))
@given(st.integers(1, 3599))
def test_a_series_of_which_time_zero_cuts_a_step_is_followed_as_well(cut: int) -> None:
    series = Series.hourly(drawn(5).per_kwh, "g")
    whole = Series(series.times_s, series.values, series.period_s, "g", start_epoch_s=0.0)
    moved, how = whole.aligned(float(cut))
    assert how == "date"
    submit, length, wait = some_jobs(5)
    here = forecast_start_times(submit, length, wait, moved, erring(moved, 0.0))
    there = forecast_start_times(submit + cut, length, wait, whole, erring(whole, 0.0))
    ours, best = (
        one.integral(b + length) - one.integral(b) for one, b in ((moved, here), (whole, there))
    )
    np.testing.assert_allclose(ours, best, rtol=1e-9)


@pytest.mark.parametrize("text", ["tomorrow", "-5%", "nan"])
def test_a_value_that_is_no_forecast_is_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="forecast"):
        parse_forecast(text, drawn(1))


@pytest.mark.parametrize("step_s", [900.0, 3600.0])
def test_the_past_of_a_series_that_deviates_for_days_predicts_better_than_its_usual_day(
    step_s: float,
) -> None:
    # As wind does: what it is now fades in a day.
    rng, per_h = np.random.default_rng(1), round(3600 / step_s)
    hours = np.arange(60 * 24 * per_h) / per_h
    kept, wind = 0.97 ** (1 / per_h), np.zeros(len(hours))
    for i, fresh in enumerate(rng.normal(0, 1, len(hours) - 1)):
        wind[i + 1] = kept * wind[i] + np.sqrt(1 - kept**2) * fresh
    values = 300 + 30 * np.sin(hours / 24 * 2 * np.pi) + 100 * wind
    forecast = from_past(Series.hourly(values, "g", step_s=step_s))
    at = np.arange(40 * 24 * per_h, 57 * 24 * per_h, 3 * per_h)
    told = np.array([forecast(int(now), 1 + 48 * per_h) for now in at]) * 3.6e6
    for ahead, most in ((0, 1e-6), (3, 45), (12, 85), (48, 130)):
        error = told[:, ahead * per_h] - values[at + ahead * per_h]
        assert np.sqrt(np.mean(error**2)) < most


def test_a_series_shorter_than_the_simulation_repeats() -> None:
    series = Series.hourly(np.round(200 + 100 * np.sin(np.arange(72) / 24 * 2 * np.pi)), "g")
    forecast = from_past(series)
    for now in (0, 20, 30, 80, 700, 5000):
        told = forecast(now, 30)
        assert told[0] == series.values[now % 72]
        if now > 100:
            np.testing.assert_allclose(told, series.values[(now + np.arange(30)) % 72], rtol=1e-3)


def test_uneven_steps_are_rejected() -> None:
    uneven = Series(np.array([0.0, 3600.0, 5000.0, 9000.0]), np.ones(4), 12_600.0, "g")
    with pytest.raises(ConfigError, match="steps are not equal"):
        from_past(uneven)


@pytest.mark.traces
@pytest.mark.parametrize(
    ("zone", "known", "hours"),
    [
        ("emaps_US-CAL-CISO_2022_hourly", "past", 6),
        ("emaps_US-CAL-CISO_2022_hourly", "past", 24),
        ("emaps_US-CAL-CISO_2022_hourly", "5%", 24),
        ("sc_carbon_DE-LU_2022", "5%", 24),
    ],
)
def test_on_gaia_s_traces_jobs_come_within_three_percent_of_the_oracle(
    traces: Path, zone: str, known: str, hours: int
) -> None:
    table = pl.read_csv(traces / "jobs_csv" / "gaia_mustang_2015_100k.csv.gz").gather_every(40)
    submit, length = (HOUR * table[name].to_numpy() for name in ("arrival_time", "length"))
    cores, bound = table["cpus"].to_numpy().astype(float), np.full(len(table), hours * HOUR)
    series = Series.read(traces / "energy" / f"{zone}.csv.gz")
    forecast = parse_forecast(known, series)
    assert forecast is not None
    begins = forecast_start_times(submit, length, bound, series, forecast)
    oracle = cheapest_start_times(submit, length, bound, series)
    ours, best = (saving(at, submit, length, cores, series) for at in (begins, oracle))
    assert (1 - ours) / (1 - best) < 1.03
    assert ours > 0.5 * best


def test_simulate_reports_the_savings_of_waiting_and_of_an_oracle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = tmp_path / "machine.yaml"
    machine.write_text(
        "nodes:\n  - {name: n, count: 8, modes: {base: {power_w: 100, idle_w: 10}}}\n"
    )
    prices = tmp_path / "prices.csv"
    values = drawn(2).per_kwh
    prices.write_text(
        "time,price (EUR/kWh)\n" + "".join(f"{3600 * i},{v}\n" for i, v in enumerate(values))
    )
    jobs = tmp_path / "jobs.csv"
    rows = [f"{4000 * i},{1800 + 60 * i},1" for i in range(150)]
    jobs.write_text("submit_s,runtime_s,nodes\n" + "\n".join(rows) + "\n")
    found = {}
    for forecast in ("past", "5%", "oracle"):
        options = ["--price", str(prices), "--max-delay", "12h", "--forecast", forecast, "--json"]
        with pytest.raises(SystemExit) as end:
            main(["simulate", str(jobs), "--cluster", str(machine), *options])
        assert not end.value.code
        found[forecast] = json.loads(capsys.readouterr().out)
    assert found["oracle"]["delay_saving"] == found["oracle"]["delay_saving_oracle"]
    for forecast in ("past", "5%"):
        one = found[forecast]
        assert 0 < one["delay_saving"] < one["delay_saving_oracle"]
        assert one["delay_saving_oracle"] == found["oracle"]["delay_saving"]
