"""Predictions made one: what the mean that Hedge weights may lose, and what it knows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctwin.learn.prediction import Known
from hpctwin.learn.prediction.mixing import RATES, ensemble, hedge
from hpctwin.model import Category, Workload

JOBS = 120


def one_after_another(log2_runtime: np.ndarray, user: np.ndarray) -> Known:
    """Jobs each of which has ended when the next is submitted."""
    runtime = np.exp2(log2_runtime)
    submit = np.concatenate([[0.0], np.cumsum(runtime + 1.0)[:-1]])
    return Known.of(
        Workload.build(
            submit_s=submit, runtime_s=runtime, walltime_s=np.full(len(runtime), 2.0**20),
            nodes=np.ones(len(runtime)), user=Category.of(user), recorded_start_s=submit,
        )
    )  # fmt: skip


def log2_error(known: Known, foretold: np.ndarray) -> np.ndarray:
    return np.abs(np.log2(foretold) - np.log2(known.truth["runtime_s"]))


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), methods=st.integers(2, 4), users=st.integers(1, 5))
def test_the_hedge_is_never_worse_than_its_best_mixture_by_more_than_its_bound(
    seed: int, methods: int, users: int
) -> None:
    rng = np.random.default_rng(seed)
    known = one_after_another(rng.uniform(0, 18, JOBS), rng.integers(0, users, JOBS))
    found = {str(number): np.exp2(rng.uniform(0, 18, JOBS)) for number in range(methods)}
    logs = np.log2(np.array(list(found.values())))
    truth = np.log2(known.truth["runtime_s"])
    # Each mixture by its definition, job by job.
    best = np.inf
    for rate in RATES:
        total = 0.0
        for job in range(JOBS):
            past = []
            for one in logs:
                error = np.abs(one - truth)
                own = known.workload.user.codes[:job] == known.workload.user.codes[job]
                general = error[:job].mean() if job else 0.5
                past.append((error[:job][own].sum() + 30 * general) / (own.sum() + 30))
            weight = np.exp(-rate * np.array(past))
            total += abs((logs[:, job] * weight).sum() / weight.sum() - truth[job])
        best = min(best, total)
    count = len(RATES)
    bound = 20 * (np.sqrt(2 * np.log(count) * JOBS) + np.sqrt(np.log(count) / 8))
    lost = log2_error(known, hedge(known, "runtime_s", found)).sum()
    assert lost <= best + bound
    assert lost <= max(log2_error(known, one).sum() for one in found.values())


def test_the_hedge_learns_to_follow_the_predictor_that_is_right_for_similar_jobs() -> None:
    rng = np.random.default_rng(1)
    user = rng.integers(0, 2, 2000)
    log2_runtime = rng.uniform(4, 12, 2000)
    known = one_after_another(log2_runtime, user)
    # One is right about the first user's jobs, the other about the second's.
    found = {
        name: np.exp2(np.where(user == whose, log2_runtime, 8.0))
        for name, whose in (("one", 0), ("other", 1))
    }
    error = log2_error(known, hedge(known, "runtime_s", found))
    alone = min(log2_error(known, one).mean() for one in found.values())
    assert error[1000:].mean() < 0.3 * alone


@pytest.mark.parametrize("mix", [ensemble, hedge])
def test_a_job_without_a_statement_does_not_count_and_where_nobody_does_nothing_is_reported(
    mix: object,
) -> None:
    known = one_after_another(np.array([3.0, 5.0, 4.0]), np.zeros(3))
    found = {"one": np.array([np.nan, 16.0, 16.0]), "other": np.array([np.nan, np.nan, 16.0])}
    assert np.array_equal(
        mix(known, "runtime_s", found),  # type: ignore[operator]
        [np.nan, 16.0, 16.0],
        equal_nan=True,
    )
