"""From instant to instant: all events of one as a batch, then a scheduling pass."""

from __future__ import annotations

import numpy as np

from hpctwin.engine.abi import Order
from hpctwin.engine.heap import heap_pop, heap_push
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    ALIVE,
    ARRIVAL_END,
    ARRIVED,
    BAD_JOB,
    CANCEL,
    CANCELLED,
    CANCELS_DONE,
    CHAIN,
    COMPRESS,
    DEAD,
    DEPENDENCY,
    DONE,
    DOWN,
    ELIGIBLE,
    ENDS,
    EXPECTED,
    FREE,
    GIVE_UP,
    HELD,
    INSTANTS,
    LATER,
    LEVEL,
    LEVELS,
    LOST,
    MAINT_AMOUNT,
    MAINT_DONE,
    MAINT_POOL,
    MAINT_SIGN,
    MAINT_TIME,
    NEED_OUTAGES,
    NEED_ROOM,
    NEVER,
    NODE_DOWN,
    NODE_FAILURE,
    NODE_JOB,
    NODE_POOL,
    NOT_A_NUMBER,
    NOW,
    ONE,
    ONLY_OUTAGES_SINCE,
    OPEN,
    OUTAGE_NODE,
    OUTAGE_SIGN,
    OUTAGE_TIME,
    OUTAGES_DONE,
    OUTCOME,
    PASS,
    PASS_DUE,
    PENDING,
    QUEUE,
    QUEUED,
    REACHED,
    REJECT,
    REJECTED,
    RELEASE,
    RELEASES,
    RETURN,
    RUN,
    RUNNING,
    RUNS,
    SEGMENTS,
    START,
    STATE,
    STEPPED,
    STOP_JOB,
    SUBMIT,
    TAKE,
    TIMER,
    UNSUBMITTED,
    WAITING,
    WAITS_FROM,
    WAITS_ON,
    WAITS_TO,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.order import dequeue, enqueue, score
from hpctwin.engine.passes import run_packed_pass, run_pass
from hpctwin.engine.transitions import (
    close,
    end_job,
    give_back,
    hold_for_ever,
    interrupt,
    settle,
    tell,
    throw_back,
)


@jit(inline=True)
def next_time(jobs: Jobs, machine: Machine, sim: Sim) -> tuple[int, int]:
    """The time of the next event, and of the next one that is not about nodes."""
    count = sim.count
    work_time = NEVER
    if count[ENDS] > 0:
        work_time = min(work_time, sim.running[0, 0])
    if count[ARRIVED] < count[ARRIVAL_END]:
        work_time = min(work_time, jobs.fixed[SUBMIT, jobs.by_submit[count[ARRIVED]]])
    if count[CANCELS_DONE] < jobs.by_cancel.shape[0]:
        work_time = min(work_time, jobs.fixed[CANCEL, jobs.by_cancel[count[CANCELS_DONE]]])
    if count[RELEASES] > 0:
        work_time = min(work_time, sim.releases[0, 0])
    work_time = min(work_time, count[TIMER])
    time = work_time
    if count[MAINT_DONE] < machine.maint.shape[1]:
        time = min(time, machine.maint[MAINT_TIME, count[MAINT_DONE]])
        work_time = time
    if count[OUTAGES_DONE] < sim.outage.shape[1]:
        time = min(time, sim.outage[OUTAGE_TIME, count[OUTAGES_DONE]])
    return time, work_time


@jit()
def release_submitted(
    order: Order, j: int, now: int, jobs: Jobs, sim: Sim, rules: Rules, work: Work
) -> None:
    """A job that was submitted and may come to run: it is eligible, or waits for others."""
    sim.flag[STATE, j] = PENDING
    if sim.flag[DEAD, j] == 1:
        hold_for_ever(j, jobs, sim)
    elif sim.number[OPEN, j] > 0:
        return
    elif sim.time.shape[0] > RELEASE and sim.time[RELEASE, j] > now:
        heap_push(sim.releases, sim.count, RELEASES, sim.time[RELEASE, j], j)
    else:
        sim.time[ELIGIBLE, j] = now
        enqueue(order, j, jobs, sim, rules, work)


@jit()
def lengthen_chains(
    order: Order, first: int, last: int, jobs: Jobs, sim: Sim, rules: Rules, work: Work
) -> None:
    """Jobs were submitted: those they wait for, and theirs, have longer chains behind them."""
    now = sim.count[NOW]
    heap = work.job  # its first two rows: level, job
    for i in range(first, last):
        j = jobs.by_submit[i]
        if jobs.fixed[WAITS_TO, j] > jobs.fixed[WAITS_FROM, j]:
            heap_push(heap, sim.count, LEVELS, jobs.fixed[LEVEL, j], j)
    done = -1
    # By level, so that a job's own chain is known before it is handed on.
    while sim.count[LEVELS] > 0:
        j = heap_pop(heap, sim.count, LEVELS)
        if j == done:
            continue
        done = j
        length = sim.number[CHAIN, j] + jobs.fixed[EXPECTED, j]
        for e in range(jobs.fixed[WAITS_FROM, j], jobs.fixed[WAITS_TO, j]):
            on = jobs.edges[WAITS_ON, e]
            if sim.number[CHAIN, on] >= length:
                continue
            sim.number[CHAIN, on] = length
            if rules.chains == 1 and rules.order_changes == 0 and sim.flag[STATE, on] == WAITING:
                dequeue(on, sim)
                enqueue(order, on, jobs, sim, rules, work)
            # What is not submitted yet says nothing of what it waits for.
            if jobs.fixed[SUBMIT, on] <= now:
                heap_push(heap, sim.count, LEVELS, jobs.fixed[LEVEL, on], on)


@jit(inline=True)
def apply_submissions(
    order: Order, now: int, jobs: Jobs, sim: Sim, rules: Rules, work: Work
) -> None:
    """All submissions of the instant: first those that will never run, then what that leaves."""
    first = sim.count[ARRIVED]
    last = first
    while last < sim.count[ARRIVAL_END] and jobs.fixed[SUBMIT, jobs.by_submit[last]] == now:
        last += 1
    sim.count[ARRIVED] = last
    for i in range(first, last):
        j = jobs.by_submit[i]
        if jobs.fixed[REJECT, j] != 0:
            settle(j, REJECTED, now, jobs, sim, rules, work)
    fallen = jobs.edges.shape[1] > 0 and rules.hold_dependents == 0
    while fallen:
        fallen = False
        for i in range(first, last):
            j = jobs.by_submit[i]
            if sim.flag[DEAD, j] == 1 and sim.flag[STATE, j] == UNSUBMITTED:
                settle(j, DEPENDENCY, now, jobs, sim, rules, work)
                fallen = True
    if jobs.edges.shape[1] > 0:
        lengthen_chains(order, first, last, jobs, sim, rules, work)
    for i in range(first, last):
        j = jobs.by_submit[i]
        if sim.flag[STATE, j] == UNSUBMITTED:
            release_submitted(order, j, now, jobs, sim, rules, work)


@jit()
def cancel_job(
    j: int, now: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """A user cancels a job that has not come to its end."""
    state = sim.flag[STATE, j]
    if state == RUNNING:
        interrupt(j, now, jobs, sim)
        give_back(j, now, jobs, machine, sim, rules, work)
        if sim.time[START, j] > now:  # its nodes were not switched on yet
            sim.time[START, j] = -1
        close(j, CANCELLED, now, sim)
    elif state == WAITING:
        dequeue(j, sim)
        if sim.time.shape[0] > HELD and sim.time[HELD, j] >= 0:
            sim.time[HELD, j] = -1
            sim.count[COMPRESS] = 1
        close(j, CANCELLED, now, sim)
    elif state == PENDING:
        close(j, CANCELLED, now, sim)


@jit()
def node_event(
    order: Order, i: int, now: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """A node fails or comes back."""
    node = sim.outage[OUTAGE_NODE, i]
    p = machine.node[NODE_POOL, node]
    if sim.outage[OUTAGE_SIGN, i] > 0:
        sim.node[NODE_DOWN, node] -= 1
        if sim.node[NODE_DOWN, node] == 0:
            sim.amount[DOWN, p] -= 1
            sim.amount[FREE, p] += 1
            sim.count[COMPRESS] = 1
        return
    sim.node[NODE_DOWN, node] += 1
    if sim.node[NODE_DOWN, node] > 1:
        return
    j = sim.node[NODE_JOB, node]
    if j >= 0:
        interrupt(j, now, jobs, sim)
        if rules.requeue == 1:
            throw_back(order, j, now, jobs, machine, sim, rules, work)
        else:
            end_job(j, NODE_FAILURE, now, jobs, machine, sim, rules, work)
    sim.amount[DOWN, p] += 1
    sim.amount[FREE, p] -= 1


@jit(inline=True)
def maintenance(now: int, sign: int, jobs: Jobs, machine: Machine, sim: Sim) -> None:
    """Maintenance windows start (-1) or end (+1)."""
    while (
        sim.count[MAINT_DONE] < machine.maint.shape[1]
        and machine.maint[MAINT_TIME, sim.count[MAINT_DONE]] == now
        and machine.maint[MAINT_SIGN, sim.count[MAINT_DONE]] == sign
    ):
        p = machine.maint[MAINT_POOL, sim.count[MAINT_DONE]]
        sim.amount[FREE, p] += sign * machine.maint[MAINT_AMOUNT, sim.count[MAINT_DONE]]
        sim.count[MAINT_DONE] += 1


@jit(inline=True)
def outages(
    order: Order,
    now: int,
    sign: int,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
) -> None:
    """Nodes fail (-1) or come back (+1)."""
    while (
        sim.count[OUTAGES_DONE] < sim.outage.shape[1]
        and sim.outage[OUTAGE_TIME, sim.count[OUTAGES_DONE]] == now
        and sim.outage[OUTAGE_SIGN, sim.count[OUTAGES_DONE]] == sign
    ):
        node_event(order, sim.count[OUTAGES_DONE], now, jobs, machine, sim, rules, work)
        sim.count[OUTAGES_DONE] += 1


@jit(inline=True)
def apply_cancellations(
    now: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """All cancellations of the instant, and only then what they mean for other jobs."""
    first = sim.count[CANCELS_DONE]
    last = first
    while last < jobs.by_cancel.shape[0] and jobs.fixed[CANCEL, jobs.by_cancel[last]] <= now:
        cancel_job(jobs.by_cancel[last], now, jobs, machine, sim, rules, work)
        last += 1
    sim.count[CANCELS_DONE] = last
    for i in range(first, last):
        j = jobs.by_cancel[i]
        if sim.flag[STATE, j] == CANCELLED:
            tell(j, now, jobs, sim, rules, work)


@jit(inline=True)
def apply_events(
    order: Order, now: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """All events of the present instant, in the order of docs/engine.md."""
    count = sim.count
    while count[ENDS] > 0 and sim.running[0, 0] == now:
        j = heap_pop(sim.running, count, ENDS)
        end_job(j, np.int64(sim.flag[OUTCOME, j]), now, jobs, machine, sim, rules, work)
    maintenance(now, TAKE, jobs, machine, sim)
    outages(order, now, TAKE, jobs, machine, sim, rules, work)
    maintenance(now, RETURN, jobs, machine, sim)
    outages(order, now, RETURN, jobs, machine, sim, rules, work)
    apply_submissions(order, now, jobs, sim, rules, work)
    apply_cancellations(now, jobs, machine, sim, rules, work)
    while count[RELEASES] > 0 and sim.releases[0, 0] == now:
        j = heap_pop(sim.releases, count, RELEASES)
        if sim.flag[STATE, j] == PENDING:
            sim.time[ELIGIBLE, j] = now
            enqueue(order, j, jobs, sim, rules, work)


@jit(inline=True)
def records_have_room(sim: Sim) -> bool:
    """Whether the records of one more instant certainly find room."""
    if sim.node.shape[1] == 0:
        return True
    return (
        sim.count[LOST] + sim.count[RUN] <= sim.lost.shape[1]
        and sim.count[SEGMENTS] + sim.node.shape[1] <= sim.segment.shape[1]
    )


@jit(inline=True)
def plan_has_room(machine: Machine, sim: Sim, work: Work) -> bool:
    """Whether the plan of this pass fits: a job can add four rows, a maintenance window two."""
    busy = sim.count[RUN] + sim.count[QUEUED]
    return 4 * busy + 2 * machine.windows.shape[1] + 8 <= work.time.shape[0]


@jit(inline=True)
def hopeless(time: int, work_time: int, sim: Sim) -> bool:
    """Whether only node failures are left to happen, and for years, while jobs wait."""
    if work_time < NEVER:
        sim.count[ONLY_OUTAGES_SINCE] = -1
        return False
    if sim.count[ONLY_OUTAGES_SINCE] < 0:
        sim.count[ONLY_OUTAGES_SINCE] = time
    return time - sim.count[ONLY_OUTAGES_SINCE] > GIVE_UP


@jit(inline=True)
def next_batch(
    order: Order,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
    until: int,
    instants: int,
) -> int:
    """Apply the events of the next instant, so that a pass is due; `PASS`, or why there is none."""
    if sim.count[PASS_DUE] == 0:
        time, work_time = next_time(jobs, machine, sim)
        if time >= NEVER or sim.count[ALIVE] == 0:
            return DONE
        if time > until:
            sim.count[NOW] = max(sim.count[NOW], until)
            return REACHED
        if instants == 0:
            return STEPPED
        if time >= rules.outage_horizon:
            return NEED_OUTAGES
        if not records_have_room(sim):
            return NEED_ROOM
        if hopeless(time, work_time, sim):
            return DONE
        sim.count[NOW] = time
        sim.count[INSTANTS] += 1
        apply_events(order, time, jobs, machine, sim, rules, work)
        sim.count[PASS_DUE] = 1
    return PASS if plan_has_room(machine, sim, work) else NEED_ROOM


@jit(inline=True)
def after_pass(sim: Sim) -> int:
    """`PASS` if the run goes on after a pass, else why not."""
    sim.count[PASS_DUE] = 0
    if sim.count[BAD_JOB] >= 0:
        return NOT_A_NUMBER
    stop = sim.count[STOP_JOB]
    if stop >= 0 and RUNNING <= sim.flag[STATE, stop] < UNSUBMITTED:
        return STEPPED
    return PASS


def advance(
    order: Order,
    candidate_order: Order,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
    until: int,
    instants: int,
) -> int:
    """Run until no event is left, a time is reached, or so many instants are done.

    Args:
        order: ordering, as a first-class function.
        candidate_order: ordering of EASY's candidates.
        jobs, machine, sim, rules, work: see `layout`.
        until: ms; events at this time still happen.
        instants: at most so many; negative for no limit.

    Returns:
        One of the codes in `layout`.
    """
    last = sim.count[INSTANTS] + instants
    while True:
        left = ONE if instants < 0 else last - sim.count[INSTANTS]
        code = next_batch(order, jobs, machine, sim, rules, work, until, left)
        if code != PASS:
            return code
        run_pass(order, candidate_order, jobs, machine, sim, rules, work)
        code = after_pass(sim)
        if code != PASS:
            return code


def advance_packed(
    order: Order,
    candidate_order: Order,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
    until: int,
    instants: int,
) -> int:
    """As `advance`, for the passes ``pack`` and ``pushdown``, which are compiled only where used."""
    last = sim.count[INSTANTS] + instants
    while True:
        left = ONE if instants < 0 else last - sim.count[INSTANTS]
        code = next_batch(order, jobs, machine, sim, rules, work, until, left)
        if code != PASS:
            return code
        run_packed_pass(order, jobs, machine, sim, rules, work)
        code = after_pass(sim)
        if code != PASS:
            return code


def reorder(order: Order, jobs: Jobs, sim: Sim, rules: Rules, work: Work) -> None:
    """Put the queue into the order of another ordering."""
    waiting = sim.count[QUEUED]
    for i in range(waiting):
        work.job[LATER, i] = sim.number[QUEUE, i]
    sim.count[QUEUED] = 0
    for i in range(waiting):
        enqueue(order, work.job[LATER, i], jobs, sim, rules, work)
    # Pushdown compares those that wait with those that run.
    if sim.push.shape[1] > 0:
        for r in range(sim.count[RUN]):
            j = sim.running[RUNS, r]
            sim.key[j] = score(order, j, sim.count[NOW], jobs, sim, rules, work)
