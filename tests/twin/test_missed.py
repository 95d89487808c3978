"""Levels that follow what was missed of late, and what they bound."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.twin.forecast.forecaster import Forecast, Forecaster
from hpctwin.twin.forecast.interval_correction import HIGHEST, LOWEST, Missed, levels

TAIL = 0.1
WEEK_S = 7 * 86_400.0


def said_of(forecaster: Forecaster, number: int) -> Forecast:
    """Of a job that is to start 1000 s from now, one each minute."""
    now_s = 60.0 * number
    (said,) = forecaster.forecast({str(number): 1}, {str(number): now_s + 1000.0}, now_s)
    return said


def worst(said: Forecast) -> float:
    """A start outside the interval, if any is that is not after the last one possible."""
    assert said.low_s is not None
    assert said.high_s is not None
    last_s = said.made_s + 1080.0
    if said.high_s < last_s - 1.0:
        return last_s
    return said.made_s if said.low_s > said.made_s else said.high_s


def missed(said: Forecast, start_s: float) -> tuple[bool, bool]:
    assert said.low_s is not None
    assert said.high_s is not None
    return start_s < said.low_s - 1e-3, start_s > said.high_s + 1e-3


@given(
    places=st.lists(st.floats(0.0, 1.0) | st.none(), min_size=30, max_size=300),
    late=st.sampled_from([0, 1, 7, 40]),
)
@settings(max_examples=30)
def test_whatever_comes_no_more_than_a_ninth_is_missed_on_a_side_but_for_what_is_not_known_yet(
    places: list[float | None], late: int
) -> None:
    """None: the worst that can come. How each went is known so many forecasts later."""
    forecaster, open_ = Forecaster(), list[tuple[Forecast, float]]()
    counted, sides = 0, np.zeros(2)
    for number, there in enumerate([0.5] * 20 + places):
        said = said_of(forecaster, number)
        start_s = worst(said) if there is None else said.made_s + there * 1080.0
        open_.append((said, start_s))
        if said.calibrated:
            counted += 1
            sides += missed(said, start_s)
        # Both its class and all know of each: 10 times twice the excess takes the level from 0.1 to −0.1.
        assert (sides <= TAIL * counted + 0.01 * (counted + 20) + 1 + late).all()
        if len(open_) > late:
            before, began_s = open_.pop(0)
            forecaster.came_true(before.job_id, began_s)


@pytest.mark.parametrize("late", [0, 60])
def test_in_the_long_run_each_side_is_missed_as_often_as_it_should_be(late: int) -> None:
    forecaster, open_ = Forecaster(), list[tuple[Forecast, float]]()
    rng, sides = np.random.default_rng(4), []
    for number in range(3000):
        said = said_of(forecaster, number)
        # In turns of some days starts come early and late.
        there = rng.beta(2, 6) if number // 700 % 2 else rng.beta(6, 2)
        open_.append((said, said.made_s + 1080.0 * float(there)))
        if number >= 200:
            sides.append(missed(*open_[-1]))
        if len(open_) > late:
            before, began_s = open_.pop(0)
            forecaster.came_true(before.job_id, began_s)
    assert np.mean(sides, axis=0) == pytest.approx([TAIL, TAIL], abs=0.02)


def test_what_is_made_up_for_by_forecasts_that_are_not_known_yet_is_not_made_up_for_again() -> None:
    known = Missed(WEEK_S)
    for _ in range(100):
        known.add(0.0, (TAIL, TAIL))
        known.settle(0.0, (TAIL, TAIL), (0.0, 1.0))
    _, before = levels(TAIL, [known.excess(0.0, TAIL)])
    assert before == LOWEST
    for _ in range(900):
        known.add(3600.0, (TAIL, 0.0))
    below, above = levels(TAIL, [known.excess(3600.0, TAIL)])
    # 100 of 1,000 were missed above, if what was promised holds: as it should be.
    assert above == pytest.approx(TAIL)
    assert below == pytest.approx(TAIL + 10 * 10 / 1020)


def test_values_older_than_the_span_are_forgotten_and_levels_keep_their_bounds() -> None:
    known = Missed(WEEK_S)
    for hour in range(3):
        known.add(3600.0 * hour, (TAIL, TAIL))
        known.settle(3600.0 * hour, (TAIL, TAIL), (1.0, 0.0))
    assert known.excess(0.0, TAIL)[0] == pytest.approx((3 - 0.3) / 23)
    assert known.excess(WEEK_S + 2 * 3600.0, TAIL)[0] == pytest.approx((1 - 0.1) / 21)
    assert known.excess(2 * WEEK_S, TAIL) == (0.0, 0.0)
    # How that went comes too late.
    known.settle(0.0, (TAIL, TAIL), (1.0, 0.0))
    known.drop(0.0, (TAIL, TAIL))
    assert known.excess(2 * WEEK_S, TAIL) == (0.0, 0.0)
    assert levels(TAIL, [(1.0, -1.0), (0.5, -0.5)]) == (LOWEST, HIGHEST)
    assert levels(TAIL, []) == (TAIL, TAIL)


def test_a_job_that_is_gone_counts_no_more() -> None:
    forecaster = Forecaster()
    for number in range(20):
        forecaster.came_true(said_of(forecaster, number).job_id, 60.0 * number + 700.0)
    before = forecaster.state()
    said = said_of(forecaster, 20)
    assert said.calibrated
    forecaster.forget("20")
    assert [one[1][1] for one in forecaster.state()["missed"]] == [[[0, 0, 0, 0]]] * 2
    assert forecaster.state()["places"] == before["places"]


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 0.4), st.booleans()), max_size=60))
@settings(max_examples=30)
def test_it_continues_from_what_it_saved(forecasts: list[tuple[float, float, bool]]) -> None:
    known = Missed(WEEK_S)
    for made_s, promised, hit in forecasts:
        known.add(made_s, (promised, TAIL))
        known.settle(made_s, (promised, TAIL), (float(not hit), 0.0))
    again = Missed.of(json.loads(json.dumps(known.state())))
    for now_s in (0.0, 5e5, 1e6, 2e6):
        assert again.excess(now_s, TAIL) == known.excess(now_s, TAIL)
