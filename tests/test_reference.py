"""The reference simulator against schedules worked out by hand from ``docs/engine.md``.

A job is written (submit, runtime, walltime, nodes), in seconds; rows are named 0, 1, 2, … in the
order in which they are written, which is by submit time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctwin.model import (
    Category,
    Cluster,
    Dependencies,
    DependencyKind,
    State,
    Workload,
)
from tests.reference import JobView, Pass, ReferenceJob, fcfs, simulate_reference
from tests.strategies import (
    ORDERS,
    clusters,
    expectations,
    orders,
    rules,
    simple_workloads,
    workloads,
)

Row = tuple[float, float, float, int]
AFTER, AFTERANY, AFTEROK = DependencyKind


def labels(*values: str | None) -> Category:
    known = sorted({value for value in values if value is not None})
    codes = [-1 if value is None else known.index(value) for value in values]
    return Category(np.array(codes, np.int32), tuple(known))


def jobs(*rows: Row, **columns: Any) -> Workload:
    submit, runtime, walltime, nodes = zip(*rows, strict=True)
    assert list(submit) == sorted(submit)
    return Workload.build(
        submit_s=submit, runtime_s=runtime, walltime_s=walltime, nodes=nodes, **columns
    )


def edges(*rows: tuple[int, int, DependencyKind, int]) -> Dependencies:
    """(job, job it waits for, kind, delay in seconds)."""
    return Dependencies.of([(job, on, kind, delay * 1000) for job, on, kind, delay in rows])


def run(workload: Workload, cluster: Cluster | int, **how: Any) -> list[ReferenceJob]:
    if isinstance(cluster, int):
        cluster = Cluster.uniform(nodes=cluster)
    return simulate_reference(workload, cluster, **{"order": fcfs, **how})


def seconds(times_ms: Sequence[int]) -> list[float]:
    return [time if time < 0 else time / 1000 for time in times_ms]


def starts(result: list[ReferenceJob]) -> list[float]:
    return seconds([job.start_ms for job in result])


def ends(result: list[ReferenceJob]) -> list[float]:
    return seconds([job.end_ms for job in result])


def states(result: list[ReferenceJob]) -> list[State]:
    return [job.state for job in result]


def cluster_of(**content: Any) -> Cluster:
    return Cluster.model_validate(content)


def three_groups(**content: Any) -> Cluster:
    """Two nodes each in groups and partitions a, b, c; a is the default."""
    return cluster_of(
        nodes=[{"name": name, "count": 2} for name in "abc"],
        partitions=[{"name": name, "groups": [name], "default": name == "a"} for name in "abc"],
        **content,
    )


# --- none, first-fit, EASY ---------------------------------------------------------------------


def test_without_backfill_a_job_that_does_not_fit_blocks_those_behind_it():
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 2), (0, 5, 5, 1))
    assert starts(run(workload, 4, backfill="none")) == [0, 10, 10]


def test_first_fit_protects_no_one():
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 4), (0, 20, 20, 1))
    assert starts(run(workload, 4, backfill="first-fit")) == [0, 20, 0]


def test_easy_refuses_a_candidate_that_would_delay_the_head():
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 4), (0, 20, 20, 1))
    assert starts(run(workload, 4)) == [0, 10, 20]


def test_easy_starts_a_candidate_that_ends_just_when_the_head_starts():
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 4), (0, 10, 10, 1))
    assert starts(run(workload, 4)) == [0, 10, 0]


def test_easy_starts_a_long_candidate_on_nodes_the_head_leaves_over():
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 3), (0, 50, 50, 1))
    assert starts(run(workload, 4)) == [0, 10, 0]


def test_easy_looks_at_walltimes_not_at_runtimes():
    # Job 2 would be over in time, but its walltime does not say so.
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 4), (0, 1, 11, 1))
    assert starts(run(workload, 4)) == [0, 10, 20]


def test_easy_looks_at_predictions_where_there_are_some():
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 4), (0, 1, 11, 1))
    result = run(workload, 4, expected_ms=[10_000, 10_000, 2_000])
    assert starts(result) == [0, 10, 0]


def test_easy_starts_the_head_when_nodes_come_back_early():
    workload = jobs((0, 5, 20, 4), (0, 5, 5, 4))
    assert starts(run(workload, 4)) == [0, 5]


@pytest.mark.parametrize(("k", "expected"), [(1, [0, 10, 30, 0]), (2, [0, 10, 20, 30])])
def test_easy_with_two_reservations_also_protects_the_second_job(k, expected):
    # With one, job 3 takes the node that job 1 leaves over, and job 2 has to wait for it.
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 3), (0, 10, 10, 4), (0, 30, 30, 1))
    assert starts(run(workload, 4, reservations=k)) == expected


def test_easy_hands_out_reservations_by_partition():
    workload = jobs(*[(0, 10, 10, 2)] * 6, partition=labels("a", "a", "a", "b", "b", "b"))
    passes: list[Pass] = []
    result = run(workload, three_groups(), log=passes)
    # Job 2 is a candidate of partition a, while job 4 has the reservation of partition b.
    assert passes[0] == Pass(0, (0, 3), ((1, 10_000), (4, 10_000)))
    assert starts(result) == [0, 10, 20, 0, 10, 20]


@pytest.mark.parametrize(
    ("candidates", "expected"), [(None, [0, 10, 0, 20]), ("sjf", [0, 10, 20, 0])]
)
def test_easy_tries_candidates_in_their_own_order(candidates, expected):
    # One node is left until 10: for 9 seconds or for 4, not for both.
    workload = jobs((0, 10, 10, 2), (0, 10, 10, 3), (0, 9, 9, 1), (0, 4, 4, 1))
    order = ORDERS[candidates] if candidates else None
    assert starts(run(workload, 3, candidate_order=order)) == expected


def test_orderings_decide_and_ties_go_by_submission():
    workload = jobs((0, 10, 10, 1), (1, 5, 5, 1), (2, 3, 3, 1), (3, 5, 5, 1))
    assert starts(run(workload, 1, order=ORDERS["sjf"])) == [0, 13, 10, 18]


# --- instants ----------------------------------------------------------------------------------


def test_simultaneous_ends_are_one_batch():
    # If the first end had a pass of its own, job 3 would take the one free node.
    workload = jobs((0, 100, 200, 1), (0, 100, 200, 1), (1, 10, 10, 2), (1, 10, 10, 1))
    assert starts(run(workload, 2)) == [0, 0, 100, 110]


def test_an_end_and_a_submission_at_one_time_are_one_batch():
    workload = jobs((0, 10, 10, 1), (1, 10, 10, 1), (10, 1, 1, 1))
    assert starts(run(workload, 1, order=ORDERS["sjf"])) == [0, 11, 10]


def test_a_job_without_length_ends_in_a_second_batch_of_the_same_time():
    passes: list[Pass] = []
    result = run(jobs((0, 0, 5, 1), (0, 5, 5, 1)), 1, log=passes)
    assert starts(result) == [0, 0]
    assert ends(result) == [0, 5]
    assert [(one.now_ms, one.started) for one in passes] == [(0, (0,)), (0, (1,)), (5_000, ())]


def test_a_job_that_waits_for_a_start_is_released_in_a_second_batch_of_the_same_time():
    # Job 1 would be before job 2 in the queue, but is not in it when job 2 starts.
    workload = jobs(
        (0, 10, 10, 1), (0, 5, 5, 1), (0, 5, 5, 1), dependencies=edges((1, 0, AFTER, 0))
    )
    result = run(workload, 2)
    assert starts(result) == [0, 5, 0]
    assert result[1].eligible_ms == 0


def test_a_job_that_waits_for_an_end_is_released_in_the_same_batch():
    # Job 1 is first in the queue of time 10, ahead of job 2.
    workload = jobs(
        (0, 10, 10, 1), (0, 5, 5, 1), (1, 5, 5, 1), dependencies=edges((1, 0, AFTEROK, 0))
    )
    assert starts(run(workload, 1)) == [0, 10, 15]


def test_until_leaves_jobs_as_they_are_then():
    workload = jobs((0, 10, 10, 1), (0, 5, 5, 1), (12, 5, 5, 1))
    result = run(workload, 1, until_ms=10_000)
    assert states(result) == [State.COMPLETED, State.RUNNING, State.PENDING]
    assert starts(result) == [0, 10, -1]
    assert ends(result) == [10, -1, -1]


# --- conservative ------------------------------------------------------------------------------


def test_conservative_disturbs_no_reservation():
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 3), (0, 10, 10, 4), (0, 30, 30, 1))
    passes: list[Pass] = []
    result = run(workload, 4, backfill="conservative", log=passes)
    assert passes[0].reservations == ((0, 0), (1, 10_000), (2, 20_000), (3, 30_000))
    assert starts(result) == [0, 10, 20, 30]


def test_conservative_gives_a_short_job_the_hole_before_a_reservation():
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 4), (0, 10, 10, 1))
    assert starts(run(workload, 4, backfill="conservative")) == [0, 10, 0]


def test_conservative_moves_reservations_up_in_order_when_a_job_ends_early():
    # At 5, job 2 moves from 30 to 20; job 3 from 40 to 30, as it may not disturb job 2.
    workload = jobs((0, 20, 20, 2), (0, 5, 30, 2), (0, 10, 10, 4), (0, 40, 40, 1))
    passes: list[Pass] = []
    result = run(workload, 4, backfill="conservative", log=passes)
    assert passes[0].reservations[2:] == ((2, 30_000), (3, 40_000))
    assert passes[1] == Pass(5_000, (), ((2, 20_000), (3, 30_000)))
    assert starts(result) == [0, 0, 20, 30]


@pytest.mark.parametrize(("runtime", "expected"), [(20, 40), (15, 30)])
def test_conservative_moves_reservations_only_when_capacity_came_back_unplanned(runtime, expected):
    # At 15, job 1 ends early: job 2 cannot move from 40, as job 3 has 20 to 40; then job 3 moves
    # to 15. That leaves 35 to 40 empty, but as long as all goes as planned nobody looks again, and
    # at 40, when nothing else happens, job 2's reservation starts it.
    workload = jobs((0, 20, 20, 1), (0, 15, 40, 1), (0, 10, 10, 2), (0, runtime, 20, 1))
    assert starts(run(workload, 2, backfill="conservative")) == [0, 0, expected, 15]


def test_conservative_moves_reservations_up_when_a_job_with_one_is_cancelled():
    workload = jobs((0, 10, 10, 1), (0, 10, 10, 1), (0, 10, 10, 1), cancel_s=[-1, 5, -1])
    result = run(workload, 1, backfill="conservative")
    assert starts(result) == [0, -1, 10]


def test_conservative_moves_reservations_up_when_a_node_is_repaired():
    workload = jobs((0, 20, 20, 1), (0, 10, 10, 1))
    passes: list[Pass] = []
    result = run(workload, 2, backfill="conservative", outages=[(1, 0, 5_000)], log=passes)
    assert passes[0].reservations == ((0, 0), (1, 20_000))
    assert starts(result) == [0, 5]


def test_conservative_makes_all_anew_when_a_job_is_overdue():
    passes: list[Pass] = []
    workload = jobs((0, 30, 10, 1), (0, 5, 5, 2))
    result = run(workload, 2, backfill="conservative", overrun="continue", log=passes)
    assert [(one.now_ms, one.reservations) for one in passes] == [
        (0, ((0, 0), (1, 10_000))),
        (10_000, ((1, 70_000),)),  # 10 + 60
        (30_000, ((1, 30_000),)),
        (35_000, ()),
    ]
    assert starts(result) == [0, 30]


def test_conservative_takes_back_the_reservation_of_a_job_that_no_longer_has_the_nodes():
    # Node 1 fails at 5: job 1 is skipped until 1005, and job 2 moves from 15 to 10.
    workload = jobs((0, 10, 10, 1), (0, 5, 5, 2), (0, 20, 20, 1))
    passes: list[Pass] = []
    result = run(workload, 2, backfill="conservative", outages=[(1, 5_000, 1_000_000)], log=passes)
    assert passes[0].reservations == ((0, 0), (1, 10_000), (2, 15_000))
    assert passes[1].reservations == ((2, 10_000),)
    assert starts(result) == [0, 1005, 10]


@pytest.mark.parametrize(
    ("submissions", "expected"), [((), [0, 10, 20, 30]), ((15,), [0, 10, 40, 20, 30])]
)
def test_conservative_counts_a_reservation_given_up_in_a_pass_for_the_next(submissions, expected):
    # Jobs 1 and 2 are ada's, who may run one. At 10 job 1 starts, and job 2 gives 20 to 30 up.
    # Job 3 keeps 30 in this pass. Where there is a pass at 15, job 3 moves to 20, the new job
    # gets 30, and job 2 then 40; else job 2 gets 20 again.
    cluster = cluster_of(
        nodes=[{"name": "node", "count": 1}],
        partitions=[{"name": "only", "max_jobs_per_user": 1, "default": True}],
    )
    workload = jobs(
        *[(0, 10, 10, 1)] * 4,
        *[(time, 10, 10, 1) for time in submissions],
        user=labels("ben", "ada", "ada", "cyd", *["dan" for _ in submissions]),
    )
    assert starts(run(workload, cluster, backfill="conservative")) == expected


# --- ends, overdue jobs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrun", "state", "end"),
    [("terminate", State.WALLTIME, 4), ("continue", State.COMPLETED, 10)],
)
def test_a_walltime_ends_a_job_unless_overruns_continue(overrun, state, end):
    result = run(jobs((0, 10, 4, 1), (0, 1, 1, 1)), 1, overrun=overrun)
    assert states(result) == [state, State.COMPLETED]
    assert ends(result) == [end, end + 1]


def test_a_job_as_long_as_its_walltime_completed():
    assert states(run(jobs((0, 4, 4, 1)), 1)) == [State.COMPLETED]


@pytest.mark.parametrize(("walltime", "expected"), [(50, [0, 100, 20]), (51, [0, 100, 105])])
def test_an_overdue_job_is_expected_at_the_next_whole_minute_after_its_planned_end(
    walltime, expected
):
    # Planned for 10, at 20 it is expected at 70.
    workload = jobs((0, 100, 10, 1), (0, 5, 5, 2), (20, walltime, walltime, 1))
    assert starts(run(workload, 2, overrun="continue")) == expected


@pytest.mark.parametrize(("walltime", "expected"), [(20, [0, 40, 20]), (21, [0, 40, 45])])
def test_an_overdue_job_is_expected_no_later_than_its_walltime(walltime, expected):
    workload = jobs((0, 40, 40, 1), (0, 5, 5, 2), (20, walltime, walltime, 1))
    result = run(workload, 2, expected_ms=[10_000, 5_000, walltime * 1000])
    assert starts(result) == expected


def test_a_job_that_ends_when_expected_is_not_overdue_then():
    # At 10 job 0 ends before anything else, so that job 1 starts.
    assert starts(run(jobs((0, 10, 10, 1), (10, 5, 5, 1)), 1)) == [0, 10]


# --- cancellations, rejections -----------------------------------------------------------------


def test_cancellations_end_running_and_waiting_jobs_but_not_before_submission():
    workload = jobs(
        (0, 10, 10, 1), (0, 9, 9, 1), (0, 5, 5, 1), (2, 5, 5, 1), cancel_s=[4, -1, 3, 1]
    )
    result = run(workload, 1)
    assert states(result) == [
        State.CANCELLED,
        State.COMPLETED,
        State.CANCELLED,
        State.CANCELLED,
    ]
    assert starts(result) == [0, 4, -1, -1]
    assert ends(result) == [4, 13, 3, 2]


def test_a_job_that_ends_when_its_user_cancels_it_has_completed():
    assert states(run(jobs((0, 5, 5, 1), cancel_s=[5]), 1)) == [State.COMPLETED]


def test_what_the_healthy_cluster_cannot_hold_is_rejected_at_submission():
    cluster = cluster_of(
        nodes=[{"name": "cpu", "count": 3, "gpus": 0}, {"name": "gpu", "count": 1, "gpus": 4}],
        partitions=[
            {"name": "all", "default": True, "max_walltime": 100},
            {"name": "wide", "min_nodes": 2, "max_nodes": 3},
        ],
        resources={"licence": 2},
    )
    workload = jobs(
        (0, 1, 1, 5),  # too wide
        (0, 1, 1, 2),  # two nodes with a GPU: there is one
        (0, 1, 1, 1),  # three licences: there are two
        (0, 1, 101, 1),  # too long
        (0, 1, 1, 1),  # too narrow for its partition
        (0, 1, 1, 4),  # too wide for its partition
        (7, 1, 100, 4),  # just right
        partition=labels(None, None, None, None, "wide", "wide", None),
        per_node={"gpus": [0, 1, 0, 0, 0, 0, 0]},
        resources={"licence": [0, 0, 3, 0, 0, 0, 2]},
    )
    result = run(workload, cluster, backfill="none")
    assert states(result) == [State.REJECTED] * 6 + [State.COMPLETED]
    assert result[0].end_ms == 0
    assert result[0].eligible_ms == -1


# --- dependencies ------------------------------------------------------------------------------


def test_a_delay_counts_from_the_event():
    workload = jobs(
        (0, 10, 10, 1),
        (0, 10, 10, 1),
        (0, 1, 1, 1),
        (0, 1, 1, 1),
        (30, 1, 1, 1),
        dependencies=edges((2, 0, AFTEROK, 5), (3, 1, AFTER, 3), (4, 0, AFTERANY, 15)),
    )
    result = run(workload, 1)
    # Job 1 starts at 10, when job 0 ends; it has the node until 20.
    assert seconds([job.eligible_ms for job in result]) == [0, 0, 15, 13, 30]
    assert starts(result) == [0, 10, 20, 21, 30]


def test_a_job_is_eligible_when_the_last_of_its_dependencies_is_true():
    workload = jobs(
        (0, 10, 10, 1),
        (0, 4, 4, 1),
        (0, 1, 1, 1),
        dependencies=edges((2, 0, AFTERANY, 0), (2, 1, AFTEROK, 20)),
    )
    assert starts(run(workload, 3)) == [0, 0, 24]


def dependency_cascade() -> Workload:
    return jobs(
        (0, 10, 4, 1),  # ends at its walltime
        (0, 1, 1, 1),
        (0, 1, 1, 1),
        (0, 1, 1, 1),
        (0, 1, 1, 1),
        (20, 1, 1, 1),
        dependencies=edges(
            (1, 0, AFTEROK, 5),
            (2, 1, AFTEROK, 0),
            (3, 1, AFTERANY, 0),
            (4, 2, AFTER, 6),
            (5, 0, AFTEROK, 0),
        ),
    )


def test_a_failed_afterok_ends_the_job_and_those_that_wait_for_it():
    result = run(dependency_cascade(), 1)
    assert states(result) == [
        State.WALLTIME,
        State.DEPENDENCY,
        State.DEPENDENCY,
        State.COMPLETED,
        State.COMPLETED,
        State.DEPENDENCY,
    ]
    # At once, whatever the delay, but not before the submission.
    assert ends(result) == [4, 4, 4, 5, 11, 20]


def test_a_failed_afterok_holds_the_job_if_so_asked():
    result = run(dependency_cascade(), 1, on_dependency_failure="hold")
    assert states(result) == [State.WALLTIME] + [State.PENDING] * 5
    assert starts(result) == [0, -1, -1, -1, -1, -1]


def test_a_dependency_on_a_rejected_job_is_settled_at_its_submission():
    workload = jobs(
        (0, 1, 1, 1),
        (0, 1, 1, 1),
        (8, 1, 1, 9),
        dependencies=Dependencies.of([(0, 2, AFTEROK, 0), (1, 2, AFTERANY, 0)]),
    )
    result = run(workload, 1)
    assert states(result) == [State.DEPENDENCY, State.COMPLETED, State.REJECTED]
    assert ends(result) == [8, 9, 8]


# --- maintenance and failures ------------------------------------------------------------------


def test_no_job_starts_that_would_still_run_when_maintenance_starts():
    cluster = Cluster.uniform(nodes=4, reservations=[{"start": 10, "end": 20}])
    workload = jobs((0, 15, 15, 1), (0, 10, 10, 1), (12, 1, 1, 1))
    assert starts(run(workload, cluster)) == [20, 0, 20]


def test_maintenance_of_some_nodes_divides_a_group_into_pools():
    cluster = Cluster.uniform(nodes=4, reservations=[{"start": 10, "end": 20, "nodes": "0,2"}])
    workload = jobs((0, 15, 15, 2), (0, 15, 15, 1), (0, 10, 10, 2))
    result = run(workload, cluster)
    # Job 1 would run into maintenance on the two nodes that are left; job 2 would not.
    assert starts(result) == [0, 15, 0]
    assert [job.nodes for job in result] == [(1, 3), (1,), (0, 2)]


def test_an_overdue_job_keeps_its_nodes_through_maintenance():
    cluster = Cluster.uniform(nodes=2, reservations=[{"start": 10, "end": 12}])
    result = run(jobs((0, 15, 5, 2), (0, 5, 5, 2)), cluster, overrun="continue")
    assert states(result) == [State.COMPLETED, State.COMPLETED]
    assert starts(result) == [0, 15]


def test_nodes_that_an_overdue_job_leaves_in_maintenance_are_still_away():
    cluster = Cluster.uniform(nodes=2, reservations=[{"start": 10, "end": 20}])
    result = run(jobs((0, 15, 5, 2), (0, 5, 5, 2)), cluster, overrun="continue")
    assert starts(result) == [0, 20]


def test_a_failure_puts_the_job_back_into_the_queue():
    # Node 1 is free again when node 0 fails at 4; the job runs its 10 seconds from the start.
    result = run(jobs((0, 10, 10, 1), (0, 3, 3, 1)), 2, outages=[(0, 4_000, 10_000)])
    assert starts(result) == [4, 0]
    assert ends(result) == [14, 3]
    assert [job.requeues for job in result] == [1, 0]
    assert result[0].eligible_ms == 0
    assert result[0].nodes == (1,)


def test_a_requeued_job_is_in_the_queue_where_it_was():
    result = run(jobs((0, 10, 10, 1), (1, 3, 3, 1)), 1, outages=[(0, 4_000, 10_000)])
    assert starts(result) == [14, 24]


def test_a_failure_ends_the_job_if_so_configured():
    cluster = Cluster.uniform(
        nodes=2,
        failures={"then": "fail", "outages": [{"node": 0, "start": 4, "duration": 10}]},
    )
    workload = jobs((0, 10, 10, 1), (0, 5, 5, 1), dependencies=edges((1, 0, AFTEROK, 0)))
    result = run(workload, cluster)
    assert states(result) == [State.NODE_FAILURE, State.DEPENDENCY]
    assert ends(result) == [4, 4]


def test_a_job_that_ends_when_its_node_fails_has_completed():
    assert states(run(jobs((0, 4, 4, 1)), 1, outages=[(0, 4_000, 1_000)])) == [State.COMPLETED]


@pytest.mark.parametrize("backfill", ["none", "first-fit", "easy", "conservative"])
def test_a_job_that_asks_for_more_nodes_than_are_up_is_skipped(backfill):
    # It blocks nobody; at 10, when the node is back, job 1 has the other until 20.
    result = run(jobs((0, 5, 5, 2), (0, 20, 20, 1)), 2, backfill=backfill, outages=[(0, 0, 10_000)])
    assert starts(result) == [20, 0]


def test_a_node_is_away_as_long_as_any_of_its_outages_lasts():
    outages = [(0, 0, 10_000), (0, 5_000, 10_000), (0, 6_000, 1_000)]
    assert starts(run(jobs((0, 1, 1, 1)), 1, outages=outages)) == [15]


# --- partitions, limits, resources, speed ------------------------------------------------------


def test_jobs_stay_on_the_groups_of_their_partition():
    workload = jobs(*[(0, 10, 10, 1)] * 4, partition=labels("b", "b", "b", None))
    result = run(workload, three_groups())
    assert starts(result) == [0, 0, 10, 0]
    assert [job.nodes for job in result] == [(2,), (3,), (2,), (0,)]


def test_a_user_at_the_limit_is_skipped_and_blocks_nobody():
    cluster = cluster_of(
        nodes=[{"name": "node", "count": 2}],
        partitions=[{"name": "only", "max_jobs_per_user": 1, "default": True}],
    )
    workload = jobs(*[(0, 10, 10, 1)] * 3, user=labels("ada", "ada", "ben"))
    assert starts(run(workload, cluster, backfill="none")) == [0, 10, 0]


def test_without_backfill_pools_and_resources_are_blocked():
    # Job 1 lacks a licence and blocks licences; job 2 wants one, and though it is there, waits and
    # blocks partition b; job 3 is of b. Job 4 is of c and wants no licence.
    workload = jobs(
        *[(0, 10, 10, 1)] * 5,
        partition=labels("a", "a", "b", "b", "c"),
        resources={"licence": [2, 2, 1, 0, 0]},
    )
    cluster = three_groups(resources={"licence": 3})
    assert starts(run(workload, cluster, backfill="none")) == [0, 10, 10, 10, 0]


def test_easy_reserves_resources_too():
    # Job 1 is promised both licences for 10; job 2 would still have one then, job 3 not.
    workload = jobs(
        (0, 10, 10, 1),
        (0, 10, 10, 1),
        (0, 11, 11, 1),
        (0, 10, 10, 1),
        resources={"licence": [1, 2, 1, 1]},
    )
    cluster = Cluster.uniform(nodes=9, resources={"licence": 2})
    assert starts(run(workload, cluster)) == [0, 10, 20, 0]


def test_a_job_runs_at_the_speed_of_its_slowest_node():
    cluster = cluster_of(
        nodes=[{"name": "fast", "count": 2, "speed": 2}, {"name": "slow", "count": 2}]
    )
    # 15 ms at double speed are 7.5, so 8. Job 1 has a fast node and a slow one.
    workload = jobs((0, 0.015, 1, 1), (0, 0.015, 1, 2), (0, 0.015, 1, 1))
    result = run(workload, cluster)
    assert [job.nodes for job in result] == [(0,), (1, 2), (3,)]
    assert [job.end_ms for job in result] == [8, 15, 15]


def test_walltimes_do_not_depend_on_speed():
    cluster = cluster_of(nodes=[{"name": "slow", "count": 1, "speed": 0.5}])
    result = run(jobs((0, 4, 6, 1)), cluster)
    assert states(result) == [State.WALLTIME]
    assert ends(result) == [6]


@pytest.mark.parametrize(
    ("placement", "nodes", "expected"),
    [
        ("first_fit", 2, (0, 1)),
        ("first_fit", 4, (0, 1, 2, 3)),
        ("best_fit", 2, (3, 4)),
        ("best_fit", 3, (0, 1, 2)),
        ("best_fit", 4, (0, 1, 2, 5)),
        ("best_fit", 6, (0, 1, 2, 5, 6, 7)),
        ("spread", 2, (0, 5)),
        ("spread", 4, (0, 1, 3, 5)),
    ],
)
def test_nodes_are_taken_from_pools_as_the_placement_says(placement, nodes, expected):
    # Pools of 3, 2 and 3 nodes.
    cluster = cluster_of(
        nodes=[{"name": name, "count": count} for name, count in (("a", 3), ("b", 2), ("c", 3))]
    )
    assert run(jobs((0, 1, 1, nodes)), cluster, placement=placement)[0].nodes == expected


# --- fair share --------------------------------------------------------------------------------


def test_usage_grows_while_jobs_run_and_halves_with_the_half_life():
    cluster = Cluster.uniform(nodes=2, fairshare={"half_life": 10, "shares": {"ada": 3}})
    workload = jobs((0, 10, 10, 2), (20, 1, 1, 1), (20, 1, 1, 1), user=labels("ada", "ada", "ben"))
    seen: dict[tuple[float, float], tuple[float, float]] = {}

    def order(now: float, job: JobView) -> float:
        seen[now, job.user] = (job.usage, job.fairshare)
        return job.submit

    run(workload, cluster, order=order)
    assert seen[0, 0] == (0, 1)
    # Two nodes for one half-life, then one half-life of decay.
    usage, factor = seen[20, 0]
    assert usage == pytest.approx(2 / (math.log(2) / 10) * 0.5 * 0.5)
    assert factor == pytest.approx(2 ** -(1 / 0.75))
    assert seen[20, 1] == (0, 1)


def test_fair_share_puts_the_user_who_used_less_first():
    workload = jobs((0, 10, 10, 1), (0, 5, 5, 1), (1, 5, 5, 1), user=labels("ada", "ada", "ben"))

    def order(now: float, job: JobView) -> float:
        return -job.fairshare

    assert starts(run(workload, 1, order=order)) == [0, 15, 10]


# --- on random workloads -----------------------------------------------------------------------


@given(st.data())
def test_nothing_is_used_twice(data):
    cluster = data.draw(clusters())
    workload = data.draw(workloads(cluster))
    result = simulate_reference(
        workload,
        cluster,
        order=ORDERS[data.draw(orders())],
        expected_ms=data.draw(expectations(workload)),
        **data.draw(rules(cluster)),
    )
    for job in result:
        assert (job.start_ms >= 0) == bool(job.nodes)
        if job.start_ms >= 0:
            assert int(workload.submit_ms[job.row]) <= job.eligible_ms <= job.start_ms
            assert job.start_ms <= job.end_ms
            assert len(job.nodes) == workload.nodes[job.row]
        assert job.state not in (State.RUNNING, State.WAITING)
    ran = [job for job in result if job.start_ms >= 0]
    for job in ran:
        then = [other for other in ran if other.start_ms <= job.start_ms < other.end_ms]
        nodes = [node for other in then for node in other.nodes]
        assert len(nodes) == len(set(nodes))
        for name, amounts in workload.resources.items():
            assert sum(amounts[other.row] for other in then) <= cluster.resources[name]


def first_promises(
    simulate: Callable[[Callable[[int, list[tuple[int, int]]], None]], list[ReferenceJob]],
    among: slice = slice(None),
) -> list[tuple[int, int]]:
    """First promised start, and start, of the jobs that got a promise.

    ``among`` selects the reservations of each pass that are looked at.
    """
    promised: dict[int, int] = {}

    def observe(now: int, reservations: list[tuple[int, int]]) -> None:
        for row, start in reservations[among]:
            promised.setdefault(row, start)

    result = simulate(observe)
    return [(start, result[row].start_ms) for row, start in promised.items()]


@given(simple_workloads(), st.sampled_from((1, 2, 60)))
def test_easy_with_fcfs_keeps_its_first_promise_to_the_head(workload, k):
    # The head gets the first reservation of a pass; the others of k > 1 are no promises, since
    # the head may move up and into their way.
    for promise, start in first_promises(
        lambda observe: run(workload, 8, reservations=k, observer=observe), slice(1)
    ):
        assert start <= promise


@given(simple_workloads(), orders())
def test_conservative_keeps_its_first_promise_in_any_order(workload, order):
    for promise, start in first_promises(
        lambda observe: run(
            workload, 8, backfill="conservative", order=ORDERS[order], observer=observe
        )
    ):
        assert start <= promise


@given(simple_workloads())
def test_all_jobs_start_in_order_without_backfill(workload):
    times = starts(run(workload, 8, backfill="none"))
    assert times == sorted(times)
