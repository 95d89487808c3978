from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.errors import ConfigError
from hpctwin.metrics import durations_s, resample, series, summarize
from tests.metrics.metric_frames import NO_LOST, capacity, frame, job, lost_attempts, results

Result = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]


def rows(steps: pl.DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return steps.select("time_s", *columns).rows()


def test_two_jobs_that_follow_each_other() -> None:
    jobs = frame(job(0, 0, 10, 3), job(4, 10, 16, 2))
    steps = series(jobs, NO_LOST, capacity((0, 4)))
    assert rows(steps, "queue_length", "queued_nodes", "running_jobs", "used_nodes") == [
        (0, 0, 0, 1, 3),
        (4, 1, 2, 1, 3),
        (10, 0, 0, 1, 2),
        (16, 0, 0, 0, 0),
    ]
    assert steps["free_nodes"].to_list() == [1, 1, 2, 4]
    assert steps["utilization"].to_list() == [0.75, 0.75, 0.5, 0]


def test_a_job_queues_from_eligible_and_not_from_submission() -> None:
    steps = series(frame(job(0, 9, 12, eligible_s=5)), NO_LOST, capacity((0, 4)))
    assert rows(steps, "queue_length") == [(0, 0), (5, 1), (9, 0), (12, 0)]


def test_a_requeued_job_queues_between_its_attempts() -> None:
    jobs = frame(job(0, 20, 30, 2, requeues=1))
    steps = series(jobs, lost_attempts((1, 5, 8, 2)), capacity((0, 4)))
    assert rows(steps, "queue_length", "used_nodes") == [
        (0, 1, 0),
        (5, 0, 2),
        (8, 1, 0),
        (20, 0, 2),
        (30, 0, 0),
    ]


def test_a_job_requeued_at_once_never_queues() -> None:
    steps = series(frame(job(0, 8, 10)), lost_attempts((1, 0, 8, 1)), capacity((0, 4)))
    assert rows(steps, "queue_length", "used_nodes") == [(0, 0, 1), (10, 0, 0)]


def test_a_job_cancelled_in_the_queue_leaves_it() -> None:
    jobs = frame(job(0, None, 7, state="cancelled"))
    steps = series(jobs, NO_LOST, capacity((0, 4)))
    assert rows(steps, "queue_length") == [(0, 1), (7, 0)]


@pytest.mark.parametrize(
    "unqueued",
    [
        job(0, None, 0, state="rejected"),
        job(0, None, 7, state="dependency", eligible_s=None),
        job(0, state="pending", eligible_s=None),
        job(0, None, 3, state="cancelled", eligible_s=5),
    ],
)
def test_jobs_that_were_never_in_the_queue_do_not_count(unqueued: dict[str, object]) -> None:
    steps = series(frame(unqueued, job(2, 2, 4)), NO_LOST, capacity((0, 4)))
    assert steps["queue_length"].to_list() == [0] * len(steps)


def test_a_job_still_waiting_stays_in_the_queue() -> None:
    steps = series(frame(job(0, 0, 10), job(1)), NO_LOST, capacity((0, 1)))
    assert rows(steps, "queue_length") == [(0, 0), (1, 1), (10, 1)]


def test_a_job_recorded_to_start_before_its_submission_does_not_queue() -> None:
    steps = series(frame(job(5, 3, 9, 2)), NO_LOST, capacity((0, 4)))
    assert rows(steps, "queue_length", "used_nodes") == [(3, 0, 2), (9, 0, 0)]


def test_capacity_changes_are_change_points() -> None:
    jobs = frame(job(0, 0, 10, 2))
    steps = series(jobs, NO_LOST, capacity((-5, 4), (3, 2), (6, 4), (50, 1)))
    assert rows(steps, "up_nodes", "free_nodes") == [(0, 4, 2), (3, 2, 0), (6, 4, 2), (10, 4, 4)]


def test_the_first_capacity_holds_before_its_row_too() -> None:
    steps = series(frame(job(0, 0, 10)), NO_LOST, capacity((5, 4)))
    assert rows(steps, "up_nodes") == [(0, 4), (10, 4)]


def test_a_late_job_in_a_maintenance_leaves_no_node_free_and_full_utilization() -> None:
    steps = series(frame(job(0, 0, 10, 3)), NO_LOST, capacity((0, 4), (5, 0)))
    assert rows(steps, "used_nodes", "free_nodes", "up_nodes", "utilization") == [
        (0, 3, 1, 4, 0.75),
        (5, 3, 0, 0, 1.0),
        (10, 0, 0, 0, 0.0),
    ]


def test_changes_that_cancel_out_make_no_row() -> None:
    jobs = frame(job(0, 0, 10, 2), job(0, 10, 20, 2), job(4, 4, 4, 1))
    steps = series(jobs, NO_LOST, capacity((0, 4)))
    assert steps["time_s"].to_list() == [0, 10, 20]


def test_until_sets_the_last_row() -> None:
    jobs = frame(job(0, 0, 10), job(5))
    longer = series(jobs, NO_LOST, capacity((0, 4)), until_s=30)
    shorter = series(jobs, NO_LOST, capacity((0, 4)), until_s=7)
    assert rows(longer, "used_nodes")[-2:] == [(10, 0), (30, 0)]
    assert rows(shorter, "used_nodes", "queue_length") == [(0, 1, 0), (5, 1, 1), (7, 1, 1)]


def test_no_jobs_make_no_rows() -> None:
    steps = series(frame(), NO_LOST, capacity((0, 4)))
    assert steps.is_empty()
    assert "utilization" in steps.columns
    assert resample(steps, 60).is_empty()


@given(results())
def test_counts_are_never_negative_and_times_rise(result: Result) -> None:
    steps = series(*result)
    levels = steps.select(pl.exclude("time_s")).to_numpy()
    assert (levels >= 0).all()
    assert (np.diff(steps["time_s"].to_numpy()) > 0).all()
    assert steps["utilization"].max() <= 1  # type: ignore[operator]


@given(results())
def test_the_integral_of_used_nodes_is_the_sum_of_nodes_times_run(result: Result) -> None:
    jobs, lost, up = result
    until = 1000.0
    steps = series(jobs, lost, up, until_s=until)
    first = steps["time_s"][0]
    used = steps["used_nodes"].to_numpy() @ durations_s(steps, first, until)
    run = (pl.col("end_s").fill_null(until) - pl.col("start_s")) * pl.col("nodes")
    expected = jobs.select(run.sum()).item() + lost.select(run.sum()).item()
    assert used == pytest.approx(expected)


@given(results(), st.integers(0, 300))
def test_the_queue_holds_the_jobs_that_were_eligible_and_have_not_left(
    result: Result, instant: int
) -> None:
    jobs, lost, up = result
    steps = series(jobs, lost, up, until_s=1000.0)
    now = instant + 0.5
    row = steps.filter(pl.col("time_s") <= now)
    counted = row["queue_length"][-1] if len(row) else 0
    waits = jobs.filter(
        pl.col("eligible_s") <= now,
        pl.coalesce("start_s", "end_s").fill_null(1e9) > now,
    )
    running_lost = lost.filter(pl.col("start_s") <= now, pl.col("end_s") > now)
    assert counted == len(waits) - len(running_lost)


def test_bins_are_time_weighted_means() -> None:
    jobs = frame(job(0, 0, 15, 4), job(0, 10, 20, 2))
    bins = resample(series(jobs, NO_LOST, capacity((0, 8))), 20)
    assert bins["used_nodes"].to_list() == [(15 * 4 + 10 * 2) / 20]
    assert bins["utilization"].to_list() == [0.5]
    assert bins["queue_length"].to_list() == [0.5]


def test_bins_begin_at_multiples_of_the_step_and_cover_the_series() -> None:
    bins = resample(series(frame(job(5, 5, 27, 2)), NO_LOST, capacity((0, 4))), 10)
    assert bins["time_s"].to_list() == [5, 10, 20]
    assert bins["span_s"].to_list() == [5, 10, 7]
    assert bins["used_nodes"].to_list() == [2, 2, 2]


@given(results(), st.floats(0.5, 100))
def test_bins_keep_the_integral(result: Result, step: float) -> None:
    steps = series(*result, until_s=400.0)
    bins = resample(steps, step)
    width = durations_s(steps, steps["time_s"][0], 400.0)
    for name in ("used_nodes", "queue_length", "up_nodes"):
        exact = float(steps[name].to_numpy() @ width)
        assert (bins[name] * bins["span_s"]).sum() == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("step", [0, -1, float("nan")])
def test_a_bin_must_have_a_width(step: float) -> None:
    with pytest.raises(ConfigError, match="step_s"):
        resample(series(frame(), NO_LOST, capacity((0, 1))), step)


@given(results(), st.sampled_from([1 / 3, 1e7, 1e13]))
def test_times_need_not_be_whole_milliseconds_nor_small(result: Result, scale: float) -> None:
    wider = [
        table.with_columns(pl.col(name) * scale for name in table.columns if name.endswith("_s"))
        for table in result
    ]
    steps = series(*result).with_columns(pl.col("time_s") * scale)
    assert series(*wider).equals(steps)


@given(results())
def test_a_long_run_is_gone_through_in_pieces(result: Result) -> None:
    whole = series(*result), summarize(*result, 100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpctwin.metrics.levels._PIECE", 3)
        steps, summary = series(*result), summarize(*result, 100)
    assert steps.equals(whole[0])
    assert summary == pytest.approx(whole[1], nan_ok=True)
