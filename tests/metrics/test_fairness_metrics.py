from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.errors import ConfigError
from hpctwin.metrics import jain, unfair_delay
from tests.metrics.metric_frames import frame, job


def test_equal_shares_are_fair() -> None:
    assert jain([3, 3, 3]) == 1
    assert jain([0, 0]) == 1


def test_one_that_has_all_gives_1_over_n() -> None:
    assert jain([0, 0, 7, 0]) == 0.25


def test_jain_of_1_and_3() -> None:
    assert jain([1, 3]) == pytest.approx(16 / 20)


def test_jain_is_the_same_to_the_last_bit_in_whatever_order_parties_come() -> None:
    values = np.random.default_rng(0).lognormal(0, 3, 500)
    assert len({jain(np.roll(values, k)) for k in range(500)}) == 1


def test_jain_of_nothing_is_none() -> None:
    assert jain([]) is None


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_jain_wants_finite_values_of_0_or_more(bad: float) -> None:
    with pytest.raises(ConfigError):
        jain([1.0, bad])


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=50))
def test_jain_is_between_1_over_n_and_1(values: list[float]) -> None:
    index = jain(values)
    assert index is not None
    assert 1 / len(values) - 1e-9 <= index <= 1


@given(st.lists(st.floats(0.001, 1000), min_size=1), st.floats(0.001, 1000))
def test_jain_has_no_unit(values: list[float], scale: float) -> None:
    assert jain(np.array(values) * scale) == pytest.approx(jain(values))


def test_only_starts_later_than_fair_are_delays() -> None:
    jobs = frame(job(0, 10, 20), job(0, 30, 40), job(0, 5, 6), job(0, 8, 9))
    assert unfair_delay(jobs, [4, 10, 7, 8]) == {
        "judged_jobs": 4,
        "mean_unfair_delay_s": (6 + 20) / 4,
        "max_unfair_delay_s": 20,
        "share_unfairly_delayed": 0.5,
    }


def test_jobs_without_start_or_fair_start_are_not_judged() -> None:
    delays = unfair_delay(frame(job(0, 10), job(0), job(0, 3)), [4, 0, math.nan])
    assert delays["judged_jobs"] == 1
    assert delays["mean_unfair_delay_s"] == 6


def test_no_judged_jobs_give_none() -> None:
    assert unfair_delay(frame(), [])["mean_unfair_delay_s"] is None


def test_fair_starts_must_be_as_many_as_jobs() -> None:
    with pytest.raises(ConfigError, match="shape"):
        unfair_delay(frame(job(0, 1, 2)), [1, 2])
