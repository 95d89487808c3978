"""SURF's week: a forecast sees the past only, and is as good as it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.cli import main
from hpctwin_papers.surf import experiment as surf


def _week(seed: int, samples: int, tasks: int) -> surf.Week:
    rng = np.random.default_rng(seed)
    start = np.sort(rng.integers(0, samples, tasks))
    length = rng.integers(1, samples, tasks)
    task = np.repeat(np.arange(tasks), length)
    age = np.arange(len(task)) - np.repeat(np.cumsum(length) - length, length)
    there = start[task] + age < samples
    used = rng.random(tasks)[task]
    sample = (start[task] + age)[there]
    power = 5000 + 90 * np.bincount(sample, used[there], samples) + rng.normal(0, 50, samples)
    return surf.Week(power, task[there], sample, used[there], start)


def _changed(week: surf.Week, cut: int, rng: np.random.Generator, tasks: bool) -> surf.Week:
    """Another future: measured power from the cut on, and what runs from the cut on if that is asked for."""
    power = week.power_w.copy()
    power[cut:] *= rng.uniform(0.5, 2, len(power) - cut)
    if not tasks:
        return replace(week, power_w=power)
    kept = (week.sample < cut) | (rng.random(len(week.sample)) < 0.3)
    used = np.where(week.sample < cut, week.used, rng.random(len(week.used)))
    # Tasks that begin later begin otherwise: they run in one sample only.
    begun = week.start[week.task] < cut
    kept &= begun | (week.sample == week.start[week.task])
    return surf.Week(power, week.task[kept], week.sample[kept], used[kept], week.start)


@given(st.integers(0, 10_000), st.sampled_from(list(surf.METHODS)), st.sampled_from([1, 7, 40]))
def test_another_future_leaves_a_forecast_as_it_is(seed: int, method: str, ahead: int) -> None:
    rng = np.random.default_rng(seed)
    week = _week(seed, int(rng.integers(60, 300)), 30)
    cut = int(rng.integers(1, len(week.power_w)))
    knowledge, forecast = surf.METHODS[method]
    before = forecast(week, ahead)
    # Power that is measured from the cut on is not seen by what is forecast before the cut.
    after = forecast(_changed(week, cut, rng, tasks=False), ahead)
    assert after[: cut + ahead] == pytest.approx(before[: cut + ahead], rel=1e-9, nan_ok=True)
    # Nor is what runs from the cut on, but by those who know the utilisation of what they forecast.
    seen = cut if knowledge == "utilisation" else cut + ahead
    after = forecast(_changed(week, cut, rng, tasks=True), ahead)
    assert after[:seen] == pytest.approx(before[:seen], rel=1e-9, nan_ok=True)


@pytest.mark.traces
def test_power_of_surf_an_hour_ahead_is_forecast_within_1_3_percent_of_utilisation(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["experiment", "surf", "--data", str(traces), "--json"])
    assert ended.value.code == 0
    rows = {row["method"]: row for row in json.loads(capsys.readouterr().out)}
    assert all(len(row["by_day_pct"]) == 7 for row in rows.values())
    assert rows["ensemble"]["knowledge"] == "utilisation"
    assert rows["ensemble"]["mape_pct"] <= 1.15
    assert rows["levels"]["mape_pct"] <= 1.15
    assert rows["ensemble, use as it was"]["mape_pct"] <= 4.12
    # What needs no model.
    assert rows["as it was"]["mape_pct"] == pytest.approx(4.16, abs=0.02)
    assert rows["as it was"]["within_hour_pct"] == pytest.approx(2.84, abs=0.02)
    # Exactly an hour ahead, and over the next hour.
    for row in rows.values():
        assert row["ahead_s"] == 3600
        assert row["by_ahead_pct"]["3600"] == row["mape_pct"]
        assert row["within_hour_pct"] == pytest.approx(np.mean(list(row["by_ahead_pct"].values())))
        assert row["seconds"] < 1
    assert rows["ensemble"]["within_hour_pct"] <= 1.05
    assert rows["ensemble, use as it was"]["within_hour_pct"] <= 2.8
