from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpctwin.metrics import Summary, durations_s, series, summarize
from hpctwin.metrics.sources import JobsInMs, JobSource, JobTable
from hpctwin.metrics.summary import Exact, RunningSummary, summarize_jobs
from hpctwin.model import Category, State
from tests.metrics.metric_frames import (
    NO_LOST,
    capacity,
    frame,
    in_ms,
    job,
    lost_attempts,
    results,
)

Result = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]


def test_a_worked_example() -> None:
    # Four nodes. Job 1 takes three from 0 to 10; job 2 (two nodes) waits from 4 to 10.
    jobs = frame(job(0, 0, 10, 3, user="ada"), job(4, 10, 20, 2, user="bob"))
    summary = summarize(jobs, NO_LOST, capacity((0, 4)), 4)
    assert summary["jobs"] == summary["jobs_completed"] == 2
    assert summary["mean_wait_s"] == 3
    assert summary["median_wait_s"] == 3
    assert summary["p95_wait_s"] == pytest.approx(0.95 * 6)
    assert summary["p99_wait_s"] == pytest.approx(0.99 * 6)
    assert summary["max_wait_s"] == 6
    assert summary["mean_turnaround_s"] == 13
    assert summary["mean_slowdown"] == pytest.approx(1.3)
    assert summary["max_bounded_slowdown"] == pytest.approx(1.6)
    assert summary["mean_pp_bounded_slowdown"] == 1
    assert summary["makespan_s"] == 20
    assert summary["throughput_jobs_per_h"] == 360
    assert summary["nodes"] == 4
    assert summary["availability"] == 1
    assert summary["utilization"] == (30 + 20) / 80
    # The queue is not empty from 4 to 10, when three of four nodes are used.
    assert summary["utilization_while_queued"] == 0.75
    assert summary["fraction_of_time_queued"] == 0.3
    assert summary["idle_while_queued_fraction"] == 6 / 80
    assert summary["mean_queue_length"] == 0.3
    assert summary["max_queue_length"] == 1
    assert summary["mean_queued_nodes"] == 0.6
    assert summary["area_weighted_response_time_s"] == (30 * 10 + 20 * 16) / 50
    assert summary["node_weighted_wait_s"] == (3 * 0 + 2 * 6) / 5
    assert summary["wasted_node_s"] == 0
    assert summary["jain_fairness_user"] == pytest.approx(2.6**2 / (2 * (1 + 1.6**2)))


def test_lost_attempts_use_nodes_and_are_counted_as_lost() -> None:
    jobs = frame(job(0, 10, 20, 2, requeues=1))
    summary = summarize(jobs, lost_attempts((1, 0, 6, 2)), capacity((0, 4)), 4)
    assert summary["wasted_node_s"] == 12
    assert summary["utilization"] == (12 + 20) / 80
    assert summary["idle_while_queued_fraction"] == 4 * 4 / 80


def test_nodes_that_are_away_are_not_capacity() -> None:
    jobs = frame(job(0, 0, 10, 2))
    summary = summarize(jobs, NO_LOST, capacity((0, 4), (5, 2)), 4)
    assert summary["utilization"] == 20 / 30
    assert summary["availability"] == 0.75


def test_nodes_kept_into_a_maintenance_count_as_capacity() -> None:
    summary = summarize(frame(job(0, 0, 10, 2)), NO_LOST, capacity((0, 4), (5, 0)), 4)
    assert summary["utilization"] == 20 / 30


def test_only_jobs_that_started_and_ended_count_in_time_statistics() -> None:
    jobs = frame(
        job(0, 2, 12),
        job(0, 50),
        job(0),
        job(0, None, 40, state="cancelled"),
        job(0, None, 0, state="rejected"),
    )
    summary = summarize(jobs, NO_LOST, capacity((0, 4)), 4)
    assert summary["max_wait_s"] == 2
    assert summary["makespan_s"] == 12
    counts = {name: count for name, count in summary.items() if name.startswith("jobs_")}
    assert counts == {
        "jobs_cancelled": 1,
        "jobs_completed": 1,
        "jobs_rejected": 1,
        "jobs_running": 1,
        "jobs_waiting": 1,
    }


def test_a_job_that_still_runs_uses_its_nodes_up_to_the_last_end() -> None:
    summary = summarize(frame(job(0, 0, 10), job(0, 5)), NO_LOST, capacity((0, 2)), 2)
    assert summary["utilization"] == 15 / 20


def test_without_jobs_metrics_are_none() -> None:
    summary = summarize(frame(), NO_LOST, capacity((0, 4)), 4)
    assert summary["jobs"] == 0
    assert summary["mean_wait_s"] is None
    assert summary["makespan_s"] is None
    assert summary["utilization"] is None
    assert summary["wasted_node_s"] == 0


def test_jobs_that_all_wait_give_none_and_no_error() -> None:
    summary = summarize(frame(job(5), job(6)), NO_LOST, capacity((0, 0)), 4)
    assert summary["jobs_waiting"] == 2
    assert summary["throughput_jobs_per_h"] is None


def test_a_run_of_no_time_has_no_rates() -> None:
    summary = summarize(frame(job(5, 5, 5)), NO_LOST, capacity((0, 4)), 4)
    assert summary["makespan_s"] == 0
    assert summary["throughput_jobs_per_h"] is None
    assert summary["mean_slowdown"] is None
    assert summary["mean_bounded_slowdown"] == 1


def test_an_empty_queue_has_no_loaded_utilization() -> None:
    summary = summarize(frame(job(0, 0, 5)), NO_LOST, capacity((0, 4)), 4)
    assert summary["utilization_while_queued"] is None
    assert summary["idle_while_queued_fraction"] == 0


def test_fairness_over_users_needs_two_of_them() -> None:
    jobs = frame(job(0, 0, 5, user="ada"), job(0, 0, 5))
    assert summarize(jobs, NO_LOST, capacity((0, 4)), 4)["jain_fairness_user"] is None


@given(results())
def test_shares_over_time_are_the_integrals_of_the_series(result: Result) -> None:
    jobs, lost, up = result
    summary = summarize(jobs, lost, up, 100)
    last = jobs.filter(pl.col("start_s").is_not_null())["end_s"].max()
    assume(isinstance(last, float))
    steps = series(jobs, lost, up, until_s=last)
    width = pl.Series(durations_s(steps, jobs["submit_s"].min(), last))  # type: ignore[arg-type]
    span = width.sum()
    assume(span > 0)
    used, queue = (steps["used_nodes"] * width).sum(), steps["queue_length"]
    present = ((steps["used_nodes"] + steps["free_nodes"]) * width).sum()
    idle_loaded = (steps["free_nodes"] * width).filter(queue > 0).sum()
    assert summary["availability"] == pytest.approx((steps["up_nodes"] * width).sum() / span / 100)
    assert summary["utilization"] == pytest.approx(used / present if present else None)
    assert summary["idle_while_queued_fraction"] == pytest.approx(
        idle_loaded / present if present else None
    )
    assert summary["fraction_of_time_queued"] == pytest.approx(width.filter(queue > 0).sum() / span)
    assert summary["mean_queue_length"] == pytest.approx((queue * width).sum() / span)
    assert summary["mean_queued_nodes"] == pytest.approx(
        (steps["queued_nodes"] * width).sum() / span
    )
    assert summary["max_queue_length"] == max(queue.filter(width > 0), default=0)


@given(results())
def test_values_can_be_written_as_json_and_shares_are_shares(result: Result) -> None:
    summary = summarize(*result, 200)
    json.dumps(summary, allow_nan=False)
    for name in (
        "utilization",
        "utilization_while_queued",
        "idle_while_queued_fraction",
        "jain_fairness_user",
    ):
        value = summary[name]
        assert value is None or 0 <= value <= 1 + 1e-12
    if summary["utilization"] is not None:
        assert summary["utilization"] + summary["idle_while_queued_fraction"] <= 1 + 1e-12  # type: ignore[operator]


@given(
    results(),
    st.lists(st.integers(0, 120), max_size=3),
    st.sampled_from([(1.0, 1), (1e8, 1000), (1e6, 10**9)]),
)
def test_a_sum_at_once_equals_a_sum_in_parts(
    result: Result, cuts: list[int], scales: tuple[float, int]
) -> None:
    """Also in stretches, as arrays, and where a run is so long or so wide that no sum has room in 64 bits."""
    scale, wider = scales
    tables = [
        table.with_columns(pl.col(pl.Float64) * scale, pl.col("nodes") * wider) for table in result
    ]

    _, lost, up = tables

    def figures(jobs: JobSource) -> Summary:
        running = RunningSummary(100, exact=True)
        for until_s in sorted({*(scale * cut for cut in cuts), math.inf}):
            running.passed(jobs, lost, up, until_s)
        running.ended(jobs)
        return running.figures()

    jobs = JobTable(tables[0])
    at_once = figures(jobs)
    assert figures(in_ms(tables[0])) == at_once
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpctwin.metrics.level_sums.whole_capacity", lambda capacity: None)
        assert figures(jobs) == at_once
        assert figures(in_ms(tables[0])) == at_once


@given(results(), st.sampled_from([(1.0, 1), (1e8, 1000), (1e6, 10**9), (1e-4, 1)]))
def test_a_run_in_whole_ms_is_summed_up_as_its_table(
    result: Result, scales: tuple[float, int]
) -> None:
    """Also where some times have no room in one number with the nodes, or are rounded to the same ms."""
    scale, wider = scales
    table, lost, up = (
        table.with_columns(pl.col(pl.Float64) * scale, pl.col("nodes") * wider) for table in result
    )
    jobs = in_ms(table)
    assert summarize_jobs(jobs, lost, up, 100) == summarize(in_seconds(jobs), lost, up, 100)


@given(st.integers(1, 3000), st.integers(0, 99), st.sampled_from([2, 400, 10**9]))
def test_many_jobs_in_whole_ms_are_summed_up_as_their_table(
    size: int, seed: int, most_ms: int
) -> None:
    """Also where many wait equally long, or recorded starts lie before the submission."""
    drawn = np.random.default_rng(seed)
    submit = np.sort(drawn.integers(0, 10 * most_ms, size))
    start = submit + drawn.integers(-1 if seed % 3 else 0, most_ms, size) * (
        drawn.random(size) < 0.6
    )
    jobs = JobsInMs(
        submit,
        submit,
        np.maximum(start, 0),
        np.maximum(start, 0) + drawn.integers(0, most_ms, size),
        drawn.integers(1, 200, size),
        np.full(size, int(State.COMPLETED), np.int8),
        Category.of([f"u{one}" for one in drawn.integers(0, 9, size)]),
    )
    up = capacity((0, 4))
    assert summarize_jobs(jobs, NO_LOST, up, 4) == summarize(in_seconds(jobs), NO_LOST, up, 4)


def in_seconds(jobs: JobsInMs) -> pl.DataFrame:
    """The same jobs as a table."""
    times = {"submit_s": jobs.submit, "eligible_s": jobs.eligible, "start_s": jobs.start}
    labels = [state.label for state in State]
    return pl.DataFrame(
        {
            **{
                name: pl.Series(np.where(ms < 0, np.nan, ms / 1000), nan_to_null=True)
                for name, ms in {**times, "end_s": jobs.end}.items()
            },
            "nodes": jobs.nodes,
            "state": [labels[state] for state in jobs.state],
            "user": jobs.user.to_series("user"),
        }
    )


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=40), st.sampled_from([1, 20_000]))
def test_quantiles_are_those_of_all_numbers_in_order(values: list[float], times: int) -> None:
    exact, values = Exact(), values * times
    for part in (values[:7], values[7:]):
        exact.add(np.array(part))
    with np.errstate(invalid="ignore", over="ignore"):
        expected = [np.quantile(values, share) for share in (0.5, 0.95, 0.99)]
        found = exact.at(0.5, 0.95, 0.99)
    for one, other in zip(found, expected, strict=True):
        assert one is not None
        # Between an infinite neighbour and a finite one NumPy finds no number.
        assert one == pytest.approx(other, rel=1e-12) or np.isnan(other) or np.isinf(one)
