"""A meter that is read as time goes on: the same figures as of a table, and what of it does not count."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.energy.power.calibration import calibrate, errors_pct
from hpctwin.energy.power.meter import Metered, Sieve

EPOCH = 1_700_000_010.0
STEP = 30.0


def _course(seed: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    busy = np.repeat(rng.integers(0, 100, steps // 10 + 1), 10)[:steps].astype(float)
    return busy, 3000 + 200 * busy + rng.normal(0, 20, steps)


def _metered(**options: float) -> Metered:
    given = {"step_s": STEP, "ahead_s": 600, "past_s": 3600, "every_s": 300, "residual_s": 120}
    return Metered(["nodes in use"], **(given | options))


def _lead(metered: Metered, busy: np.ndarray, power: np.ndarray, known: np.ndarray) -> None:
    """Two readings a step, told a little late; the use changes at the step's edge."""
    for i, (nodes, watts) in enumerate(zip(busy, power, strict=True)):
        begin = EPOCH + i * STEP
        metered.see(begin, [nodes])
        if known[i]:
            metered.see(begin + 7, [nodes])
            assert metered.read(begin + 5, watts - 10)
            assert metered.read(begin + 25, watts + 10)
    metered.see(EPOCH + (len(busy) + 1) * STEP, [busy[-1]])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([50, 130, 400]), st.sampled_from([0.0, 0.3]))
def test_calibration_over_time_equals_calibration_on_the_table(
    seed: int, steps: int, missing: float
) -> None:
    busy, power = _course(seed, steps)
    known = np.random.default_rng(seed).random(steps) >= missing
    known[0] = True
    metered = _metered()
    _lead(metered, busy, power, known)
    power[~known] = math.nan
    np.testing.assert_allclose(metered.measured_w, power)
    np.testing.assert_allclose(metered.use[known, 0], busy[known])
    models = calibrate(metered.use, power, ahead=20, window=120, every=10, residual=4)
    wanted = {name: errors_pct(one, power)[40:] for name, one in models.items()}
    assert metered.errors_pct() == pytest.approx(
        {name: float(np.nanmean(e)) for name, e in wanted.items() if not np.isnan(e).all()}
    )


def test_dropped_values_change_no_error_of_the_last_day(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, power = _course(5, 900)
    monkeypatch.setattr("hpctwin.energy.power.meter._DAY_S", 1800.0)
    short, whole = _metered(), _metered()
    monkeypatch.setattr(whole, "_drop", lambda: None)
    for one in (short, whole):
        _lead(one, busy, power, np.ones(900, bool))
    assert len(whole.measured_w) == 900 > len(short.measured_w) + 300
    assert short.errors_pct() == pytest.approx(whole.errors_pct(), rel=1e-4)


def test_an_expected_value_is_judged_when_it_has_been_measured() -> None:
    metered = _metered()
    assert metered.expect([50]) is None  # nothing is known yet
    for i in range(200):
        metered.see(EPOCH + i * STEP, [i % 7])
        metered.read(EPOCH + i * STEP + 1, 1000.0 + 100 * (i % 7))
        # Of the step 20 after the last that has ended, 18 after this one.
        if i > 100:
            metered.expect([(i + 18) % 7])
    assert metered.errors_pct()["expected use"] == pytest.approx(0, abs=0.01)
    assert metered.errors_pct()["as it was"] > 5


def test_a_table_continues_as_if_there_had_been_no_break() -> None:
    busy, power = _course(6, 300)
    whole, first, second = _metered(), _metered(), _metered()
    _lead(whole, busy, power, np.ones(300, bool))
    _lead(first, busy[:200], power[:200], np.ones(200, bool))
    second.restore(first.table())
    assert second.errors_pct() == first.errors_pct()
    for i in range(200, 300):
        second.see(EPOCH + i * STEP, [busy[i]])
        second.read(EPOCH + i * STEP + 5, power[i])
    second.see(EPOCH + 301 * STEP, [0])
    assert second.errors_pct() == pytest.approx(whole.errors_pct())
    other = Metered(["cores in use"], step_s=STEP)
    other.restore(first.table())
    assert not len(other.measured_w)


@given(st.lists(st.tuples(st.floats(-1e4, 1e6), st.booleans()), max_size=60))
def test_no_clock_or_meter_breaks_anything(
    steps: list[tuple[float, bool]],
) -> None:
    metered, now = _metered(), EPOCH
    for by, reads in steps:
        now += by
        metered.see(now, [3.0])
        if reads:
            metered.read(now, 500.0)
    metered.expect([4.0])
    assert all(math.isfinite(error) for error in metered.errors_pct().values())
    assert len(metered.table()) == len(metered.measured_w)


def _sifted(readings: list[tuple[float, float]], sieve: Sieve | None = None) -> Counter[str]:
    sieve = sieve or Sieve()
    for time_s, power_w in readings:
        sieve.takes(time_s, power_w, now_s=max(t for t, _ in readings if math.isfinite(t)))
    return sieve.omitted


GOOD = [(EPOCH + 10 * i, 2000.0 + i) for i in range(30)]
AFTER = EPOCH + 300


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ((AFTER, math.nan), "no number"),
        ((math.inf, 2000.0), "no number"),
        ((AFTER, 0.0), "not above 0"),
        ((AFTER, -5.0), "not above 0"),
        ((EPOCH + 290, 2000.0), "told again"),
        ((EPOCH + 200, 2000.0), "goes backwards"),
        ((AFTER, 2.0), "1/1,000 of the previous value: another unit"),
        ((AFTER, 2e6), "1,000 of the previous value: another unit"),
        ((AFTER, 30_000.0), "a jump"),
    ],
)
def test_an_invalid_reading_is_omitted_and_said(bad: tuple[float, float], why: str) -> None:
    assert _sifted([*GOOD, bad, (AFTER + 5, 2000.0)]) == {why: 1}


def test_a_reading_ahead_of_the_clock_is_skipped_and_does_not_hide_later_ones() -> None:
    sieve = Sieve()
    assert not sieve.takes(EPOCH + 1000, 2000.0, now_s=EPOCH)
    assert sieve.fault == "ahead of the clock"
    assert sieve.takes(EPOCH + 1, 2000.0, now_s=EPOCH)
    assert sieve.fault is None


def test_a_jump_that_lasts_is_a_new_level_and_another_unit_never_is() -> None:
    drop = [(AFTER + 10 * i, 100.0) for i in range(200)]
    assert _sifted([*GOOD, *drop]) == {"a jump": 60}
    kilo = [(AFTER + 10 * i, 2.0) for i in range(200)]
    assert _sifted([*GOOD, *kilo]) == {"1/1,000 of the previous value: another unit": 200}


def test_the_clusters_bounds_reveal_a_wrong_unit_from_the_first_reading() -> None:
    kilo = [(t, w / 1000) for t, w in GOOD]
    assert _sifted(kilo, Sieve(500, 10_000)) == {
        "outside the possible power draw of the cluster": len(GOOD)
    }
    assert not _sifted(GOOD, Sieve(500, 10_000))
