from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.errors import ConfigError
from hpctwin.metrics import served, with_job_metrics
from hpctwin.metrics.registry import JOB_METRICS, TAU_S
from hpctwin.metrics.sources import JobTable
from tests.metrics.metric_frames import frame, job, results


def test_metrics_of_a_job_that_waited_60_s_and_ran_20_s_on_2_nodes() -> None:
    row = with_job_metrics(frame(job(10, 70, 90, 2))).row(0, named=True)
    assert row["wait_s"] == 60
    assert row["run_s"] == 20
    assert row["turnaround_s"] == 80
    assert row["slowdown"] == 4
    assert row["bounded_slowdown"] == 4
    assert row["pp_bounded_slowdown"] == 2


def test_a_short_run_counts_as_tau_in_bounded_slowdown() -> None:
    row = with_job_metrics(frame(job(0, 98, 100, 4))).row(0, named=True)
    assert row["slowdown"] == 50
    assert row["bounded_slowdown"] == 10
    assert row["pp_bounded_slowdown"] == 2.5


def test_tau_can_be_set() -> None:
    row = with_job_metrics(frame(job(0, 98, 100)), tau_s=50).row(0, named=True)
    assert row["bounded_slowdown"] == 2


def test_bounded_slowdowns_are_never_below_1() -> None:
    row = with_job_metrics(frame(job(0, 0, 5, 64))).row(0, named=True)
    assert row["bounded_slowdown"] == 1
    assert row["pp_bounded_slowdown"] == 1


def test_slowdown_of_a_run_of_no_time_is_null() -> None:
    row = with_job_metrics(frame(job(0, 30, 30))).row(0, named=True)
    assert row["slowdown"] is None
    assert row["bounded_slowdown"] == 3


def test_a_running_job_has_a_wait_but_no_turnaround() -> None:
    row = with_job_metrics(frame(job(0, 30))).row(0, named=True)
    assert row["wait_s"] == 30
    assert row["turnaround_s"] is None
    assert row["bounded_slowdown"] is None


def test_a_job_cancelled_in_the_queue_has_an_end_but_no_turnaround() -> None:
    row = with_job_metrics(frame(job(0, None, 50, state="cancelled"))).row(0, named=True)
    assert row["turnaround_s"] is None
    assert row["pp_bounded_slowdown"] is None


def test_rows_and_their_order_are_kept() -> None:
    jobs = frame(job(0, 5, 9), job(1), job(2, 2, 3))
    assert with_job_metrics(jobs).select(jobs.columns).equals(jobs)


def test_no_jobs_give_no_rows() -> None:
    assert "bounded_slowdown" in with_job_metrics(frame()).columns


@pytest.mark.parametrize("tau", [0, -1, float("nan")])
def test_tau_must_be_above_0(tau: float) -> None:
    with pytest.raises(ConfigError, match="tau_s"):
        with_job_metrics(frame(), tau_s=tau)


def test_served_jobs_are_those_that_started_and_ended() -> None:
    jobs = frame(job(0, 5, 9), job(1), job(2, 2), job(3, None, 4, state="cancelled"))
    assert served(jobs)["job_id"].to_list() == [1]


def test_integer_times_are_accepted() -> None:
    jobs = frame(job(0, 5, 9)).with_columns(pl.col("submit_s", "start_s", "end_s").cast(pl.Int64))
    assert with_job_metrics(jobs)["wait_s"].to_list() == [5.0]


@pytest.mark.filterwarnings("error")
@given(results(), st.sampled_from([1, 0.5, 0]))
def test_the_metrics_of_those_served_are_the_same_as_arrays_to_the_last_bit(
    result: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame], share: float
) -> None:
    jobs = result[0].with_columns(pl.col("nodes") * share)
    table, (which, arrays) = with_job_metrics(served(jobs)), JobTable(jobs).served(TAU_S)
    assert jobs.filter(pl.Series(which, dtype=pl.Boolean))["job_id"].to_list() == (
        table["job_id"].to_list()
    )
    assert table["area"].to_list() == (table["nodes"] * table["run_s"]).to_list()
    for metric in JOB_METRICS:
        np.testing.assert_array_equal(
            arrays.defined(metric), table[metric.name].drop_nulls().to_numpy()
        )
