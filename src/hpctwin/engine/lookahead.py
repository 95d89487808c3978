"""Looking ahead: a fork of only what matters, a few jobs put into it, run until they have started.

A fork for a what-if need not hold the jobs that have ended or are not there yet. `Sim` arrays of the
fork keep their full length, so that rows mean the same jobs, but only the rows of jobs that are
waiting, running or about to arrive are written; what other rows hold is never looked at. That holds
for workloads without dependencies.
"""

from __future__ import annotations

from numba import int64, types

from hpctwin.engine.abi import Order
from hpctwin.engine.heap import heap_push
from hpctwin.engine.jit import jit
from hpctwin.engine.kernel import JOBS, MACHINE, ORDER, RULES, SIM, WORK, advance
from hpctwin.engine.layout import (
    ALIVE,
    ARRIVAL_END,
    ARRIVED,
    CANCELS_DONE,
    COMPRESS,
    DEAD,
    DONE,
    END,
    ENDS,
    FIRST_NODE,
    HELD,
    I64,
    LIMIT,
    LOST,
    NEED_ROOM,
    OPEN,
    OUTAGES_DONE,
    QUEUE,
    QUEUED,
    REACHED,
    REQUEUES,
    RUN,
    RUNNING,
    RUNS,
    RUNTIME,
    SEGMENTS,
    START,
    STARTED,
    STATE,
    STEPPED,
    STOP_JOB,
    SUBMIT,
    TIMER,
    UNSUBMITTED,
    WAITING,
    F64x2,
    I64x2,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.loop import records_have_room
from hpctwin.engine.order import dequeue

__all__ = ["arrive", "look_ahead", "withdraw"]

_MINUTE = 60_000


@jit()
def copy_table(source: I64x2 | F64x2, target: I64x2 | F64x2) -> None:
    """Copy all elements (an assignment of slices would allocate memory)."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@jit()
def copy_job(j: int, sim: Sim, fork: Sim) -> None:
    """Copy all that a state holds of one job."""
    for row in range(sim.time.shape[0]):
        fork.time[row, j] = sim.time[row, j]
    for row in range(sim.flag.shape[0]):
        fork.flag[row, j] = sim.flag[row, j]
    for row in range(QUEUE + 1, sim.number.shape[0]):
        fork.number[row, j] = sim.number[row, j]
    fork.key[j] = sim.key[j]
    if sim.take.shape[0] > 0:
        for p in range(sim.take.shape[1]):
            fork.take[j, p] = sim.take[j, p]


@jit()
def forget_job(j: int, sim: Sim) -> None:
    """Make a job one that has not been submitted."""
    for row in range(sim.time.shape[0]):
        sim.time[row, j] = -1
    sim.flag[STATE, j] = UNSUBMITTED
    sim.flag[STARTED, j] = 0
    sim.flag[DEAD, j] = 0
    sim.number[OPEN, j] = 0
    sim.number[REQUEUES, j] = 0
    sim.number[FIRST_NODE, j] = -1


@jit()
def copy_live(sim: Sim, fork: Sim) -> None:
    """Copy the state of the machine, and of the jobs that wait or run."""
    for row in range(sim.count.shape[0]):
        fork.count[row] = sim.count[row]
    # The records of lost attempts and of node use stay behind, and nobody knows of failures to come.
    fork.count[LOST] = 0
    fork.count[SEGMENTS] = 0
    fork.count[OUTAGES_DONE] = 0
    fork.count[CANCELS_DONE] = 0
    for i in range(sim.count[QUEUED]):
        j = sim.number[QUEUE, i]
        fork.number[QUEUE, i] = j
        copy_job(j, sim, fork)
    for i in range(sim.count[RUN]):
        copy_job(sim.running[RUNS, i], sim, fork)
        for row in range(RUNS, sim.running.shape[0]):
            fork.running[row, i] = sim.running[row, i]
    for i in range(sim.count[ENDS]):
        for row in range(RUNS):
            fork.running[row, i] = sim.running[row, i]
    copy_table(sim.amount, fork.amount)
    copy_table(sim.user_running, fork.user_running)
    copy_table(sim.usage, fork.usage)
    copy_table(sim.node, fork.node)


@jit()
def expected_end(j: int, now: int, jobs: Jobs, sim: Sim) -> int:
    """When a running job ends by what is known: its runtime; that passed, its walltime; then soon."""
    start = sim.time[START, j]
    end = start + min(jobs.fixed[RUNTIME, j], jobs.fixed[LIMIT, j])
    if end <= now:
        end = start + jobs.fixed[LIMIT, j]
    if end <= now:
        end = now + _MINUTE
    return end


@jit()
def forget_ends(now: int, jobs: Jobs, sim: Sim) -> None:
    """Let running jobs end when they are expected to, not when they really will."""
    sim.count[ENDS] = 0
    for i in range(sim.count[RUN]):
        j = sim.running[RUNS, i]
        sim.time[END, j] = expected_end(j, now, jobs, sim)
        heap_push(sim.running, sim.count, ENDS, sim.time[END, j], j)


@jit()
def expect(j: int, jobs: Jobs, sim: Sim) -> None:
    """Let a job be submitted at its submit time, after those of the same time."""
    i = sim.count[ARRIVAL_END]
    sim.count[ARRIVAL_END] = i + 1
    while i > sim.count[ARRIVED] and (
        jobs.fixed[SUBMIT, jobs.by_submit[i - 1]] > jobs.fixed[SUBMIT, j]
    ):
        jobs.by_submit[i] = jobs.by_submit[i - 1]
        i -= 1
    jobs.by_submit[i] = j


@jit(
    int64(
        ORDER, ORDER, JOBS, MACHINE, SIM, RULES, JOBS, MACHINE, SIM, RULES,
        WORK, int64, types.Array(int64, 1, "C"), types.Array(int64, 1, "C"), int64, int64,
        types.Array(int64, 2, "C"),
    )
)  # fmt: skip
def look_ahead(
    order: Order,
    candidate_order: Order,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    ahead_jobs: Jobs,
    ahead_machine: Machine,
    ahead: Sim,
    ahead_rules: Rules,
    work: Work,
    now: int,
    coming: I64,
    watched: I64,
    latest: int,
    ends_known: int,
    found: I64x2,
) -> int:
    """Run a simulation up to an instant, then a fork of it until the watched jobs have started.

    Args:
        order, candidate_order, jobs, machine, sim, rules: the simulation.
        ahead_jobs, ahead_machine, ahead, ahead_rules: the fork; its jobs with the runtimes that are
            known, its own ``by_submit`` and no cancellations; its state without outages.
        work: scratch memory of both.
        now: ms; what happens before, happens in the simulation; from here on in the fork only.
        coming: jobs that arrive in the fork, at their submit times there.
        watched: jobs whose start is asked for; of those coming or waiting.
        latest: ms; starts later than this are not looked for.
        ends_known: 1 if running jobs end when they really will, 0 if by ``ahead_jobs``.
        found: start and end of each job watched, ms; -1 if it has not started. Written.

    Returns:
        `DONE`; or what stopped the simulation (negative: the fork) before its time.
    """
    code = advance(order, candidate_order, jobs, machine, sim, rules, work, now - 1, -1)
    if code != DONE and code != REACHED:
        return code
    copy_live(sim, ahead)
    if ends_known == 0:
        forget_ends(now - 1, ahead_jobs, ahead)
    ahead.count[ARRIVED] = 0
    ahead.count[ARRIVAL_END] = 0
    for i in range(sim.count[ARRIVED], sim.count[ARRIVAL_END]):
        j = jobs.by_submit[i]
        ahead_jobs.fixed[SUBMIT, j] = jobs.fixed[SUBMIT, j]
        forget_job(j, ahead)
        expect(j, ahead_jobs, ahead)
    for i in range(coming.shape[0]):
        j = coming[i]
        forget_job(j, ahead)
        expect(j, ahead_jobs, ahead)
    ahead.count[ALIVE] += coming.shape[0]
    for i in range(watched.shape[0]):
        j = watched[i]
        found[0, i] = -1
        found[1, i] = -1
        while ahead.flag[STATE, j] < RUNNING or ahead.flag[STATE, j] == UNSUBMITTED:
            ahead.count[STOP_JOB] = j
            code = advance(
                order,
                candidate_order,
                ahead_jobs,
                ahead_machine,
                ahead,
                ahead_rules,
                work,
                latest,
                -1,
            )
            if code == DONE or code == REACHED:
                break
            if code == NEED_ROOM and not records_have_room(ahead):
                ahead.count[LOST] = 0
                ahead.count[SEGMENTS] = 0
            elif code != STEPPED:
                return -code
        if RUNNING <= ahead.flag[STATE, j] < UNSUBMITTED:
            found[0, i] = ahead.time[START, j]
            found[1, i] = ahead.time[END, j]
    return DONE


@jit(types.void(int64, int64, SIM))
def withdraw(j: int, now: int, sim: Sim) -> None:
    """Take a waiting job away as if it had never been submitted; a pass follows at ``now``."""
    if sim.flag[STATE, j] == WAITING:
        dequeue(j, sim)
        if sim.time.shape[0] > HELD and sim.time[HELD, j] >= 0:
            sim.count[COMPRESS] = 1
        sim.count[TIMER] = min(sim.count[TIMER], now)
        forget_job(j, sim)
        sim.count[ALIVE] -= 1


@jit(types.void(int64, JOBS, SIM))
def arrive(j: int, jobs: Jobs, sim: Sim) -> None:
    """Let a job be submitted at its submit time, which lies not before the present."""
    expect(j, jobs, sim)
    sim.count[ALIVE] += 1
