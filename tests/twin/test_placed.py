"""Where starts lie in what was foretold of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.twin.forecast.interval_correction import knots, place, times

WAITS = st.floats(0.0, 1e6)


def of(*waits_s: float, now_s: float = 1000.0) -> np.ndarray:
    return knots(now_s, *(np.array([now_s + wait_s]) for wait_s in waits_s))


@given(waits=st.lists(WAITS, min_size=4, max_size=4).map(sorted), there=st.floats(0.0, 5.0))
def test_a_place_is_a_time_and_back(waits: list[float], there: float) -> None:
    known = of(*waits)
    assert (np.diff(known) >= 0.0).all()
    (time_s,) = times(known, np.array([there]))
    assert time_s >= 1000.0
    (next_call_s,) = times(known, np.array([place(known[0], time_s)]))
    assert next_call_s == pytest.approx(time_s, abs=1e-3)


def test_futures_that_agree_are_set_apart_and_the_present_comes_first() -> None:
    known = of(600.0, 600.0, 600.0, 600.0)
    np.testing.assert_allclose(known, [[1000.0, 1552.0, 1600.0, 1648.0, 1660.0]])
    assert place(known[0], 1600.0) == 0.5
    np.testing.assert_allclose(of(0.0, 0.0, 0.0, 0.0), [[1000.0, 1000.0, 1000.0, 1024.0, 1030.0]])


def test_a_start_after_the_last_forecast_adds_one_per_hour() -> None:
    for waits in ((10.0, 20.0, 30.0, 40.0), (1e4, 2e4, 3e4, 4e4)):
        known = of(*waits)
        assert place(known[0], known[0, -1] + 7200.0) == pytest.approx(3.0)
        assert times(known, np.array([3.0]))[0] == pytest.approx(known[0, -1] + 7200.0)
