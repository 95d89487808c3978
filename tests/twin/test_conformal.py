"""Quantiles of residuals at levels that follow the misses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.learn.prediction.intervals import Conformal


def interval(known: Conformal) -> tuple[float, float]:
    low, high = sorted(known.quantiles((known.below, 1.0 - known.above)).tolist())
    return low, high


def covered(residuals: list[float], known: Conformal) -> list[bool]:
    """Whether each lay in the interval that was given before it was known."""
    found = []
    for one in residuals:
        if len(known) >= 20:
            low, high = interval(known)
            found.append(low <= one <= high)
            known.missed(int(one > high) - int(one < low))
        known.learn(one)
    return found


@given(seed=st.integers(0, 10_000), drift=st.sampled_from([0.0, 0.01, -0.05]))
@settings(max_examples=12)
def test_it_covers_what_it_promises_even_if_residuals_drift(seed: int, drift: float) -> None:
    rng = np.random.default_rng(seed)
    residuals = (rng.standard_exponential(1500) + drift * np.arange(1500)).tolist()
    held = covered(residuals, Conformal(0.8, 300, 0.02))
    assert np.mean(held) == pytest.approx(0.8, abs=0.03)


def test_without_moving_its_levels_it_does_not_cover_what_drifts() -> None:
    rng = np.random.default_rng(1)
    residuals = (rng.standard_exponential(2000) + 0.05 * np.arange(2000)).tolist()
    assert np.mean(covered(residuals, Conformal(0.8, 300, 0.0))) < 0.5


def test_both_ends_are_missed_equally_often_whatever_the_shape() -> None:
    known, sides = Conformal(0.8, 300, 0.02), []
    for one in np.random.default_rng(2).pareto(1.5, 3000).tolist():
        if len(known) >= 20:
            low, high = interval(known)
            sides.append(int(one > high) - int(one < low))
            known.missed(sides[-1])
        known.learn(one)
    assert np.mean(np.array(sides) < 0) == pytest.approx(0.1, abs=0.015)
    assert np.mean(np.array(sides) > 0) == pytest.approx(0.1, abs=0.015)
