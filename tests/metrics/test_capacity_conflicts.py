from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.metrics import capacity_conflicts
from tests.metrics.metric_frames import capacity, frame, job


def test_a_start_beyond_the_nodes_is_reported() -> None:
    jobs = frame(job(0, 0, 10, 3), job(0, 5, 8, 2), job(0, 10, 20, 4))
    assert capacity_conflicts(jobs, 4).rows() == [(5, 2, 2, 1, 1)]


def test_ends_free_nodes_before_starts_at_the_same_time() -> None:
    assert capacity_conflicts(frame(job(0, 0, 10, 4), job(0, 10, 20, 4)), 4).is_empty()


def test_a_conflicting_job_counts_for_those_after_it() -> None:
    jobs = frame(job(0, 0, 10, 4), job(0, 1, 10, 2), job(0, 2, 10, 1))
    assert capacity_conflicts(jobs, 4).select("free_nodes", "excess").rows() == [(0, 2), (-2, 3)]


def test_nodes_that_are_away_cannot_be_started_on() -> None:
    jobs = frame(job(0, 0, 10, 2), job(0, 5, 6, 2), job(0, 7, 8, 2))
    up = capacity((0, 4), (5, 3), (7, 4))
    assert capacity_conflicts(jobs, 4, up).rows() == [(5, 2, 2, 1, 1)]


def test_nodes_that_leave_under_a_running_job_are_no_conflict() -> None:
    assert capacity_conflicts(frame(job(0, 0, 10, 4)), 4, capacity((0, 4), (5, 0))).is_empty()


def test_a_job_of_no_time_holds_no_nodes() -> None:
    jobs = frame(job(0, 5, 5, 4), job(0, 5, 9, 4), job(0, 6, 6, 1))
    assert capacity_conflicts(jobs, 4).rows() == [(6, 3, 1, 0, 1)]


def test_a_job_without_end_keeps_its_nodes() -> None:
    jobs = frame(job(0, 0, None, 3), job(0, 99, 100, 2), job(0))
    assert capacity_conflicts(jobs, 4)["job_id"].to_list() == [2]


def test_job_ids_may_be_text() -> None:
    jobs = frame(job(0, 0, 9, 5)).with_columns(job_id=pl.lit("a7"))
    assert capacity_conflicts(jobs, 4)["job_id"].to_list() == ["a7"]


def test_nothing_recorded_gives_no_rows() -> None:
    assert capacity_conflicts(frame(), 4).is_empty()
    assert capacity_conflicts(frame(job(0)), 4, capacity((0, 4))).is_empty()


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(1, 5)),
        min_size=1,
        max_size=15,
    )
)
def test_conflicts_are_those_of_a_plain_count(recorded: list[tuple[int, int, int]]) -> None:
    jobs = frame(*(job(0, start, start + run, nodes) for start, run, nodes in recorded))
    expected = []
    for row, (start, _, nodes) in enumerate(recorded):
        used = sum(
            n
            for other, (s, r, n) in enumerate(recorded)
            if s + r > start and (s < start or (s == start and other < row))
        )
        if used + nodes > 6:
            expected.append((row + 1, 6 - used))
    found = capacity_conflicts(jobs, 6).select("job_id", "free_nodes").rows()
    assert sorted(found) == expected
