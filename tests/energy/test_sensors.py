"""Several sensors and counters of energy, made into the power of all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.energy.power.meter import Sensors

EPOCH = 1_700_000_000.0


@given(
    st.lists(st.tuples(st.floats(1, 60), st.floats(1, 1e7)), min_size=2, max_size=40),
    st.integers(0, 39),
)
def test_a_counter_s_power_has_the_energy_that_it_counted_but_that_around_a_new_beginning(
    course: list[tuple[float, float]], anew: int
) -> None:
    sensors, now, counted, energy, lost = Sensors(rising=True), EPOCH, 5e9, 0.0, 0.0
    sensors.take("", now, counted, now)
    for i, (length_s, power_w) in enumerate(course):
        now += length_s
        counted += length_s * power_w
        if i == anew:
            counted, lost = 1.0, length_s * power_w
        found = sensors.take("", now, counted, now)
        assert (found is None) == (i == anew)
        if found is not None:
            assert found == (pytest.approx(now - length_s / 2), pytest.approx(power_w, rel=1e-3))
            energy += found[1] * length_s
    assert energy + lost == pytest.approx(sum(s * w for s, w in course), rel=1e-3)
    assert sensors.omitted == ({"a counter that restarted": 1} if anew < len(course) else {})


def test_a_counter_of_whole_units_gives_the_mean_since_it_rose_last() -> None:
    sensors = Sensors(rising=True)
    told = [(0, 100.0), (10, 100.0), (20, 100.0), (30, 103.0), (40, 103.0), (50, 105.0)]
    found = [sensors.take("", EPOCH + at, 3.6e6 * kwh, EPOCH + at) for at, kwh in told]
    assert found[:3] == [None] * 3
    assert found[3] == (EPOCH + 15, pytest.approx(3 * 3.6e6 / 30))
    assert found[4:] == [None, (EPOCH + 40, pytest.approx(2 * 3.6e6 / 20))]


@given(st.permutations(["a", "b", "c"]), st.lists(st.sampled_from(["a", "b", "c"]), max_size=20))
def test_a_sum_uses_the_last_reading_of_each_sensor(first: list[str], then: list[str]) -> None:
    sensors, now, last = Sensors(3), EPOCH, {}
    for i, name in enumerate(first + then):
        now += 1
        before = dict(last)
        last[name] = 100.0 * (i + 1)
        found = sensors.take(name, now, last[name], now)
        if i < 2:
            assert found is None
        elif found is not None:
            assert found[1] in (sum(last.values()), sum(before.values()))
    assert sensors.fault(now) is None


def test_there_is_no_sum_without_one_of_them_and_it_is_reported_by_name() -> None:
    sensors = Sensors(2, silent_after_s=60)
    assert sensors.take("r1", EPOCH, 5, EPOCH) is None
    assert sensors.fault(EPOCH + 30) is None
    assert sensors.take("r1", EPOCH + 50, 5, EPOCH + 50) is None
    assert sensors.fault(EPOCH + 70) == "1 of 2 sensors have not reported any power yet"
    assert sensors.take("r2", EPOCH + 70, 7, EPOCH + 70) == (EPOCH + 70, 12)
    for at in range(80, 160, 10):
        found = sensors.take("r1", EPOCH + at, 5, EPOCH + at)
        # What r2 told last holds for a minute.
        assert found is None or at <= 70 + 60
    assert sensors.fault(EPOCH + 150) == "1 of 2 sensors have stopped reporting: r2"
    assert sensors.take("r2", EPOCH + 155, 7, EPOCH + 155) == (EPOCH + 155, 12)
    sensors.take("r1", EPOCH + 160, 5, EPOCH + 160)
    sensors.take("r3", EPOCH + 160, 5, EPOCH + 160)
    assert sensors.fault(EPOCH + 160) == "3 sensors report, but 2 are expected: r1, r2, r3"
    assert sensors.take("r1", EPOCH + 170, 5, EPOCH + 170) is None


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ((EPOCH + 10, math.nan), "no number"), ((math.inf, 1.0), "no number"),
        ((EPOCH + 10, -1.0), "below 0"), ((EPOCH, 1.0), "told again"), ((EPOCH - 5, 1.0), "goes backwards"),
        ((EPOCH + 100, 1.0), "ahead of the clock"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rising", [False, True])
def test_impossible_values_are_skipped_and_hide_nothing_after_them(
    bad: tuple[float, float], why: str, rising: bool
) -> None:
    sensors = Sensors(rising=rising)
    sensors.take("", EPOCH, 1000.0, EPOCH)
    assert sensors.take("", *bad, now_s=EPOCH + 10) is None
    assert sensors.omitted == {why: 1}
    assert sensors.take("", EPOCH + 20, 3000.0, EPOCH + 20) == (
        (EPOCH + 10, 100.0) if rising else (EPOCH + 20, 3000.0)
    )
