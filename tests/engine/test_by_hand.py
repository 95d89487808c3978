"""Who starts when: schedules worked out by hand from docs/reference/rules, held by reference and engine."""

from __future__ import annotations

import pytest

from hpctwin.model import State
from tests.by_hand import (
    AFTER,
    AFTEROK,
    cluster_of,
    edges,
    ends,
    jobs,
    labels,
    passes_of,
    starts,
    states,
    three_groups,
)
from tests.reference import Pass
from tests.strategies import ORDERS

# --- none, first-fit, EASY ---------------------------------------------------------------------


def test_without_backfill_a_job_that_does_not_fit_blocks_those_behind_it(run):
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 2), (0, 5, 5, 1))
    assert starts(run(workload, 4, backfill="none")) == [0, 10, 10]


def test_first_fit_protects_no_job(run):
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 4), (0, 20, 20, 1))
    assert starts(run(workload, 4, backfill="first-fit")) == [0, 20, 0]


def test_easy_rejects_a_candidate_that_would_delay_the_head(run):
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 4), (0, 20, 20, 1))
    assert starts(run(workload, 4)) == [0, 10, 20]


def test_easy_starts_a_candidate_that_ends_just_when_the_head_starts(run):
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 4), (0, 10, 10, 1))
    assert starts(run(workload, 4)) == [0, 10, 0]


def test_easy_starts_a_long_candidate_on_nodes_the_head_leaves_over(run):
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 3), (0, 50, 50, 1))
    assert starts(run(workload, 4)) == [0, 10, 0]


def test_easy_looks_at_walltimes_not_at_runtimes(run):
    # Job 2 would be over in time, but its walltime does not say so.
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 4), (0, 1, 11, 1))
    assert starts(run(workload, 4)) == [0, 10, 20]


def test_easy_looks_at_predictions_where_there_are_some(run):
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 4), (0, 1, 11, 1))
    result = run(workload, 4, expected_ms=[10_000, 10_000, 2_000])
    assert starts(result) == [0, 10, 0]


def test_easy_starts_the_head_when_nodes_come_back_early(run):
    workload = jobs((0, 5, 20, 4), (0, 5, 5, 4))
    assert starts(run(workload, 4)) == [0, 5]


@pytest.mark.parametrize(("k", "expected"), [(1, [0, 10, 30, 0]), (2, [0, 10, 20, 30])])
def test_easy_with_two_reservations_also_protects_the_second_job(run, k, expected):
    # With one, job 3 takes the node that job 1 leaves over, and job 2 has to wait for it.
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 3), (0, 10, 10, 4), (0, 30, 30, 1))
    assert starts(run(workload, 4, reservations=k)) == expected


def test_easy_hands_out_reservations_by_partition(run):
    workload = jobs(*[(0, 10, 10, 2)] * 6, partition=labels("a", "a", "a", "b", "b", "b"))
    passes = passes_of(workload, three_groups())
    result = run(workload, three_groups())
    # Job 2 is a candidate of partition a, while job 4 has the reservation of partition b.
    assert passes[0] == Pass(0, (0, 3), ((1, 10_000), (4, 10_000)))
    assert starts(result) == [0, 10, 20, 0, 10, 20]


@pytest.mark.parametrize(
    ("candidates", "expected"), [(None, [0, 10, 0, 20]), ("sjf", [0, 10, 20, 0])]
)
def test_easy_tries_candidates_in_their_own_order(run, candidates, expected):
    # One node is left until 10: for 9 seconds or for 4, not for both.
    workload = jobs((0, 10, 10, 2), (0, 10, 10, 3), (0, 9, 9, 1), (0, 4, 4, 1))
    order = ORDERS[candidates] if candidates else None
    assert starts(run(workload, 3, candidate_order=order)) == expected


def test_orderings_decide_and_ties_go_by_submission(run):
    workload = jobs((0, 10, 10, 1), (1, 5, 5, 1), (2, 3, 3, 1), (3, 5, 5, 1))
    assert starts(run(workload, 1, order=ORDERS["sjf"])) == [0, 13, 10, 18]


# --- instants ----------------------------------------------------------------------------------


def test_simultaneous_ends_are_one_batch(run):
    # If the first end had a pass of its own, job 3 would take the one free node.
    workload = jobs((0, 100, 200, 1), (0, 100, 200, 1), (1, 10, 10, 2), (1, 10, 10, 1))
    assert starts(run(workload, 2)) == [0, 0, 100, 110]


def test_an_end_and_a_submission_at_one_time_are_one_batch(run):
    workload = jobs((0, 10, 10, 1), (1, 10, 10, 1), (10, 1, 1, 1))
    assert starts(run(workload, 1, order=ORDERS["sjf"])) == [0, 11, 10]


def test_a_job_without_length_ends_in_a_second_batch_of_the_same_time(run):
    passes = passes_of(jobs((0, 0, 5, 1), (0, 5, 5, 1)), 1)
    result = run(jobs((0, 0, 5, 1), (0, 5, 5, 1)), 1)
    assert starts(result) == [0, 0]
    assert ends(result) == [0, 5]
    assert [(one.now_ms, one.started) for one in passes] == [(0, (0,)), (0, (1,)), (5_000, ())]


def test_a_job_that_waits_for_a_start_is_released_in_a_second_batch_of_the_same_time(run):
    # Job 1 would be before job 2 in the queue, but is not in it when job 2 starts.
    workload = jobs(
        (0, 10, 10, 1), (0, 5, 5, 1), (0, 5, 5, 1), dependencies=edges((1, 0, AFTER, 0))
    )
    result = run(workload, 2)
    assert starts(result) == [0, 5, 0]
    assert result[1].eligible_ms == 0


def test_a_job_that_waits_for_an_end_is_released_in_the_same_batch(run):
    # Job 1 is first in the queue of time 10, ahead of job 2.
    workload = jobs(
        (0, 10, 10, 1), (0, 5, 5, 1), (1, 5, 5, 1), dependencies=edges((1, 0, AFTEROK, 0))
    )
    assert starts(run(workload, 1)) == [0, 10, 15]


def test_until_leaves_jobs_as_they_are_then(run):
    workload = jobs((0, 10, 10, 1), (0, 5, 5, 1), (12, 5, 5, 1))
    result = run(workload, 1, until_ms=10_000)
    assert states(result) == [State.COMPLETED, State.RUNNING, State.PENDING]
    assert starts(result) == [0, 10, -1]
    assert ends(result) == [10, -1, -1]


# --- conservative ------------------------------------------------------------------------------


def test_conservative_disturbs_no_reservation(run):
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 3), (0, 10, 10, 4), (0, 30, 30, 1))
    passes = passes_of(workload, 4, backfill="conservative")
    result = run(workload, 4, backfill="conservative")
    assert passes[0].reservations == ((0, 0), (1, 10_000), (2, 20_000), (3, 30_000))
    assert starts(result) == [0, 10, 20, 30]


def test_conservative_gives_a_short_job_the_hole_before_a_reservation(run):
    workload = jobs((0, 10, 10, 3), (0, 10, 10, 4), (0, 10, 10, 1))
    assert starts(run(workload, 4, backfill="conservative")) == [0, 10, 0]


def test_conservative_moves_reservations_up_in_order_when_a_job_ends_early(run):
    # At 5, job 2 moves from 30 to 20; job 3 from 40 to 30, as it may not disturb job 2.
    workload = jobs((0, 20, 20, 2), (0, 5, 30, 2), (0, 10, 10, 4), (0, 40, 40, 1))
    passes = passes_of(workload, 4, backfill="conservative")
    result = run(workload, 4, backfill="conservative")
    assert passes[0].reservations[2:] == ((2, 30_000), (3, 40_000))
    assert passes[1] == Pass(5_000, (), ((2, 20_000), (3, 30_000)))
    assert starts(result) == [0, 0, 20, 30]


@pytest.mark.parametrize(("runtime", "expected"), [(20, 40), (15, 30)])
def test_conservative_moves_reservations_only_when_capacity_came_back_unplanned(
    run, runtime, expected
):
    # At 15, job 1 ends early: job 2 cannot move from 40, as job 3 has 20 to 40; then job 3 moves
    # to 15. That leaves 35 to 40 empty, but as long as all goes as planned nobody looks again, and
    # at 40, when nothing else happens, job 2's reservation starts it.
    workload = jobs((0, 20, 20, 1), (0, 15, 40, 1), (0, 10, 10, 2), (0, runtime, 20, 1))
    assert starts(run(workload, 2, backfill="conservative")) == [0, 0, expected, 15]


def test_conservative_moves_reservations_up_when_a_job_with_one_is_cancelled(run):
    workload = jobs((0, 10, 10, 1), (0, 10, 10, 1), (0, 10, 10, 1), cancel_s=[-1, 5, -1])
    result = run(workload, 1, backfill="conservative")
    assert starts(result) == [0, -1, 10]


def test_conservative_moves_reservations_up_when_a_node_is_repaired(run):
    workload = jobs((0, 20, 20, 1), (0, 10, 10, 1))
    passes = passes_of(workload, 2, backfill="conservative", outages=[(1, 0, 5_000)])
    result = run(workload, 2, backfill="conservative", outages=[(1, 0, 5_000)])
    assert passes[0].reservations == ((0, 0), (1, 20_000))
    assert starts(result) == [0, 5]


def test_conservative_replans_everything_when_a_job_is_overdue(run):
    workload = jobs((0, 30, 10, 1), (0, 5, 5, 2))
    passes = passes_of(workload, 2, backfill="conservative", overrun="continue")
    result = run(workload, 2, backfill="conservative", overrun="continue")
    assert [(one.now_ms, one.reservations) for one in passes] == [
        (0, ((0, 0), (1, 10_000))),
        (10_000, ((1, 70_000),)),  # 10 + 60
        (30_000, ((1, 30_000),)),
        (35_000, ()),
    ]
    assert starts(result) == [0, 30]


def test_conservative_takes_back_the_reservation_of_a_job_that_no_longer_has_the_nodes(run):
    # Node 1 fails at 5: job 1 is skipped until 1005, and job 2 moves from 15 to 10.
    workload = jobs((0, 10, 10, 1), (0, 5, 5, 2), (0, 20, 20, 1))
    passes = passes_of(workload, 2, backfill="conservative", outages=[(1, 5_000, 1_000_000)])
    result = run(workload, 2, backfill="conservative", outages=[(1, 5_000, 1_000_000)])
    assert passes[0].reservations == ((0, 0), (1, 10_000), (2, 15_000))
    assert passes[1].reservations == ((2, 10_000),)
    assert starts(result) == [0, 1005, 10]


@pytest.mark.parametrize(
    ("submissions", "expected"), [((), [0, 10, 20, 30]), ((15,), [0, 10, 40, 20, 30])]
)
def test_conservative_counts_a_reservation_given_up_in_a_pass_for_the_next(
    run, submissions, expected
):
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
