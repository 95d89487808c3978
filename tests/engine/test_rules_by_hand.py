"""Ends, dependencies, maintenance, partitions: cases worked out by hand, held by reference and engine."""

from __future__ import annotations

import pytest

from hpctwin.model import Cluster, Dependencies, State, Workload
from tests.by_hand import (
    AFTER,
    AFTERANY,
    AFTEROK,
    cluster_of,
    edges,
    ends,
    jobs,
    labels,
    seconds,
    starts,
    states,
    three_groups,
)
from tests.reference import JobView

# --- ends, overdue jobs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrun", "state", "end"),
    [("terminate", State.WALLTIME, 4), ("continue", State.COMPLETED, 10)],
)
def test_a_walltime_ends_a_job_unless_overruns_continue(run, overrun, state, end):
    result = run(jobs((0, 10, 4, 1), (0, 1, 1, 1)), 1, overrun=overrun)
    assert states(result) == [state, State.COMPLETED]
    assert ends(result) == [end, end + 1]


def test_a_job_as_long_as_its_walltime_completed(run):
    assert states(run(jobs((0, 4, 4, 1)), 1)) == [State.COMPLETED]


@pytest.mark.parametrize(("walltime", "expected"), [(50, [0, 100, 20]), (51, [0, 100, 105])])
def test_an_overdue_job_is_expected_at_the_next_whole_minute_after_its_planned_end(
    run, walltime, expected
):
    # Planned for 10, at 20 it is expected at 70.
    workload = jobs((0, 100, 10, 1), (0, 5, 5, 2), (20, walltime, walltime, 1))
    assert starts(run(workload, 2, overrun="continue")) == expected


@pytest.mark.parametrize(("walltime", "expected"), [(20, [0, 40, 20]), (21, [0, 40, 45])])
def test_an_overdue_job_is_expected_no_later_than_its_walltime(run, walltime, expected):
    workload = jobs((0, 40, 40, 1), (0, 5, 5, 2), (20, walltime, walltime, 1))
    result = run(workload, 2, expected_ms=[10_000, 5_000, walltime * 1000])
    assert starts(result) == expected


def test_a_job_that_ends_when_expected_is_not_overdue_then(run):
    # At 10 job 0 ends before anything else, so that job 1 starts.
    assert starts(run(jobs((0, 10, 10, 1), (10, 5, 5, 1)), 1)) == [0, 10]


# --- cancellations, rejections -----------------------------------------------------------------


def test_cancellations_end_running_and_waiting_jobs_but_not_before_submission(run):
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


def test_a_job_that_ends_when_its_user_cancels_it_has_completed(run):
    assert states(run(jobs((0, 5, 5, 1), cancel_s=[5]), 1)) == [State.COMPLETED]


def test_jobs_that_the_healthy_cluster_cannot_hold_are_rejected_at_submission(run):
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


def test_a_delay_counts_from_the_event(run):
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


def test_a_job_is_eligible_when_the_last_of_its_dependencies_is_true(run):
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


def test_a_failed_afterok_ends_the_job_and_those_that_wait_for_it(run):
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


def test_a_failed_afterok_holds_the_job_if_so_asked(run):
    result = run(dependency_cascade(), 1, on_dependency_failure="hold")
    assert states(result) == [State.WALLTIME] + [State.PENDING] * 5
    assert starts(result) == [0, -1, -1, -1, -1, -1]


def test_a_dependency_on_a_rejected_job_is_settled_at_its_submission(run):
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


def test_no_job_starts_that_would_still_run_when_maintenance_starts(run):
    cluster = Cluster.uniform(nodes=4, reservations=[{"start": 10, "end": 20}])
    workload = jobs((0, 15, 15, 1), (0, 10, 10, 1), (12, 1, 1, 1))
    assert starts(run(workload, cluster)) == [20, 0, 20]


def test_maintenance_of_some_nodes_divides_a_group_into_pools(run):
    cluster = Cluster.uniform(nodes=4, reservations=[{"start": 10, "end": 20, "nodes": "0,2"}])
    workload = jobs((0, 15, 15, 2), (0, 15, 15, 1), (0, 10, 10, 2))
    result = run(workload, cluster)
    # Job 1 would run into maintenance on the two nodes that are left; job 2 would not.
    assert starts(result) == [0, 15, 0]
    assert [job.nodes for job in result] == [(1, 3), (1,), (0, 2)]


def test_an_overdue_job_keeps_its_nodes_through_maintenance(run):
    cluster = Cluster.uniform(nodes=2, reservations=[{"start": 10, "end": 12}])
    result = run(jobs((0, 15, 5, 2), (0, 5, 5, 2)), cluster, overrun="continue")
    assert states(result) == [State.COMPLETED, State.COMPLETED]
    assert starts(result) == [0, 15]


def test_nodes_that_an_overdue_job_leaves_in_maintenance_are_still_away(run):
    cluster = Cluster.uniform(nodes=2, reservations=[{"start": 10, "end": 20}])
    result = run(jobs((0, 15, 5, 2), (0, 5, 5, 2)), cluster, overrun="continue")
    assert starts(result) == [0, 20]


def test_a_failure_puts_the_job_back_into_the_queue(run):
    # Node 1 is free again when node 0 fails at 4; the job runs its 10 seconds from the start.
    result = run(jobs((0, 10, 10, 1), (0, 3, 3, 1)), 2, outages=[(0, 4_000, 10_000)])
    assert starts(result) == [4, 0]
    assert ends(result) == [14, 3]
    assert [job.requeues for job in result] == [1, 0]
    assert result[0].eligible_ms == 0
    assert result[0].nodes == (1,)


def test_a_requeued_job_is_in_the_queue_where_it_was(run):
    result = run(jobs((0, 10, 10, 1), (1, 3, 3, 1)), 1, outages=[(0, 4_000, 10_000)])
    assert starts(result) == [14, 24]


def test_a_failure_ends_the_job_if_so_configured(run):
    cluster = Cluster.uniform(
        nodes=2,
        failures={"on_failure": "fail", "outages": [{"node": 0, "start": 4, "duration": 10}]},
    )
    workload = jobs((0, 10, 10, 1), (0, 5, 5, 1), dependencies=edges((1, 0, AFTEROK, 0)))
    result = run(workload, cluster)
    assert states(result) == [State.NODE_FAILURE, State.DEPENDENCY]
    assert ends(result) == [4, 4]


def test_a_job_that_ends_when_its_node_fails_has_completed(run):
    assert states(run(jobs((0, 4, 4, 1)), 1, outages=[(0, 4_000, 1_000)])) == [State.COMPLETED]


@pytest.mark.parametrize("backfill", ["none", "first-fit", "easy", "conservative"])
def test_a_job_that_asks_for_more_nodes_than_are_up_is_skipped(run, backfill):
    # It blocks nobody; at 10, when the node is back, job 1 has the other until 20.
    result = run(jobs((0, 5, 5, 2), (0, 20, 20, 1)), 2, backfill=backfill, outages=[(0, 0, 10_000)])
    assert starts(result) == [20, 0]


def test_a_node_is_away_as_long_as_any_of_its_outages_lasts(run):
    outages = [(0, 0, 10_000), (0, 5_000, 10_000), (0, 6_000, 1_000)]
    assert starts(run(jobs((0, 1, 1, 1)), 1, outages=outages)) == [15]


# --- partitions, limits, resources, speed ------------------------------------------------------


def test_jobs_stay_on_the_groups_of_their_partition(run):
    workload = jobs(*[(0, 10, 10, 1)] * 4, partition=labels("b", "b", "b", None))
    result = run(workload, three_groups())
    assert starts(result) == [0, 0, 10, 0]
    assert [job.nodes for job in result] == [(2,), (3,), (2,), (0,)]


def test_a_user_at_the_limit_is_skipped_and_blocks_no_other_user(run):
    cluster = cluster_of(
        nodes=[{"name": "node", "count": 2}],
        partitions=[{"name": "only", "max_jobs_per_user": 1, "default": True}],
    )
    workload = jobs(*[(0, 10, 10, 1)] * 3, user=labels("ada", "ada", "ben"))
    assert starts(run(workload, cluster, backfill="none")) == [0, 10, 0]


def test_without_backfill_pools_and_resources_are_blocked(run):
    # Job 1 lacks a licence and blocks licences; job 2 wants one, and though it is there, waits and
    # blocks partition b; job 3 is of b. Job 4 is of c and wants no licence.
    workload = jobs(
        *[(0, 10, 10, 1)] * 5,
        partition=labels("a", "a", "b", "b", "c"),
        resources={"licence": [2, 2, 1, 0, 0]},
    )
    cluster = three_groups(resources={"licence": 3})
    assert starts(run(workload, cluster, backfill="none")) == [0, 10, 10, 10, 0]


def test_easy_reserves_resources_too(run):
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


def test_a_job_runs_at_the_speed_of_its_slowest_node(run):
    cluster = cluster_of(
        nodes=[{"name": "fast", "count": 2, "speed": 2}, {"name": "slow", "count": 2}]
    )
    # 15 ms at double speed are 7.5, so 8. Job 1 has a fast node and a slow one.
    workload = jobs((0, 0.015, 1, 1), (0, 0.015, 1, 2), (0, 0.015, 1, 1))
    result = run(workload, cluster)
    assert [job.nodes for job in result] == [(0,), (1, 2), (3,)]
    assert [job.end_ms for job in result] == [8, 15, 15]


def test_walltimes_do_not_depend_on_speed(run):
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
def test_nodes_are_taken_from_pools_as_the_placement_says(run, placement, nodes, expected):
    # Pools of 3, 2 and 3 nodes.
    cluster = cluster_of(
        nodes=[{"name": name, "count": count} for name, count in (("a", 3), ("b", 2), ("c", 3))]
    )
    assert run(jobs((0, 1, 1, nodes)), cluster, placement=placement)[0].nodes == expected


# --- fair share --------------------------------------------------------------------------------


def test_fair_share_puts_the_user_who_used_less_first(run):
    workload = jobs((0, 10, 10, 1), (0, 5, 5, 1), (1, 5, 5, 1), user=labels("ada", "ada", "ben"))

    def order(now: float, job: JobView) -> float:
        return -job.fairshare

    assert starts(run(workload, 1, order=order)) == [0, 15, 10]


def test_the_usage_factor_of_a_qos_multiplies_fair_share_usage(run):
    # Each has 4 of the nodes for 10 s; then ada's counts 10, 40 or 120 node-seconds, ben's 40.
    workload = jobs(
        (0, 10, 10, 4), (0, 10, 10, 4), (1, 5, 5, 8), (1, 5, 5, 8),
        user=labels("ada", "ben", "ben", "ada"), qos=labels("q", None, None, None),
    )  # fmt: skip

    def order(now: float, job: JobView) -> float:
        return -job.fairshare

    for factor, expected in ((0.25, [15, 10]), (0, [15, 10]), (3, [10, 15])):
        cluster = cluster_of(
            nodes=[{"name": "n", "count": 8}], fairshare={"factors": {"q": factor}}
        )
        assert starts(run(workload, cluster, order=order))[2:] == expected
