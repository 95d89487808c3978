"""What happens to a job: it starts, ends, is thrown back, or will never run."""

from __future__ import annotations

import math

from hpctwin.engine.abi import Order
from hpctwin.engine.heap import heap_push, heap_remove
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    AFTER,
    AFTEROK,
    ALIVE,
    CANCEL,
    COMPLETED,
    COMPRESS,
    DEAD,
    DEPENDENCY,
    EDGE_DELAY,
    EDGE_JOB,
    EDGE_KIND,
    END,
    ENDS,
    EXPECTED,
    FAILED,
    FAILS,
    FREE,
    HELD,
    KIND,
    LIMIT,
    LOST,
    LOST_END,
    LOST_JOB,
    LOST_START,
    NEVER,
    NODES,
    OPEN,
    OUTCOME,
    PENDING,
    PLANNED,
    RELEASE,
    RELEASES,
    REQUEUES,
    RETURN,
    RUN,
    RUNNING,
    RUNS,
    RUNTIME,
    SHARE,
    STACK,
    START,
    STARTED,
    STARTS,
    STATE,
    TAKE,
    UNSUBMITTED,
    USED,
    USED_AT,
    USED_NODES,
    USER,
    WALLTIME,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.order import decayed, enqueue
from hpctwin.engine.placement import nodes_ready, note_segments, place, release_nodes
from hpctwin.engine.plan import load_take


@jit()
def duration(j: int, jobs: Jobs, machine: Machine, work: Work) -> int:
    """How long a job runs on the nodes in ``work.take`` if nothing ends it, ms."""
    speed = math.inf
    for p in range(machine.speed.shape[0]):
        if work.take[p] > 0 and machine.speed[p] < speed:
            speed = machine.speed[p]
    if speed == 1.0:
        return jobs.fixed[RUNTIME, j]
    return int(math.ceil(jobs.fixed[RUNTIME, j] / speed))


@jit()
def account(
    j: int, sign: int, now: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules
) -> None:
    """Bring the fair-share usage of a job's label up to now; its nodes change by ``sign``."""
    everyone = machine.share.shape[0]
    for label in (jobs.fixed[SHARE, j], everyone):
        sim.usage[USED, label] = decayed(label, now, sim, rules)
        sim.usage[USED_AT, label] = now
        sim.usage[USED_NODES, label] += sign * jobs.fixed[NODES, j]


@jit()
def run_insert(j: int, planned: int, sim: Sim) -> None:
    """Add a job to the running ones, sorted by planned end."""
    n = sim.count[RUN]
    i = n
    while i > 0 and sim.running[PLANNED, i - 1] > planned:
        sim.running[PLANNED, i] = sim.running[PLANNED, i - 1]
        sim.running[RUNS, i] = sim.running[RUNS, i - 1]
        i -= 1
    sim.running[PLANNED, i] = planned
    sim.running[RUNS, i] = j
    sim.count[RUN] = n + 1


@jit()
def run_remove(j: int, planned: int, sim: Sim) -> None:
    """Take a job out of the running ones."""
    n = sim.count[RUN]
    low = 0
    high = n
    while low < high:
        middle = (low + high) // 2
        if sim.running[PLANNED, middle] < planned:
            low = middle + 1
        else:
            high = middle
    while sim.running[RUNS, low] != j:
        low += 1
    for i in range(low, n - 1):
        sim.running[PLANNED, i] = sim.running[PLANNED, i + 1]
        sim.running[RUNS, i] = sim.running[RUNS, i + 1]
    sim.count[RUN] = n - 1


@jit()
def start_job(
    j: int, now: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """Start a waiting job on ``work.take`` nodes of each pool, as soon as they are switched on."""
    pools = machine.speed.shape[0]
    length = duration(j, jobs, machine, work)
    sim.flag[OUTCOME, j] = COMPLETED if jobs.fixed[FAILS, j] == 0 else FAILED
    if rules.terminate == 1 and length > jobs.fixed[LIMIT, j]:
        length = jobs.fixed[LIMIT, j]
        sim.flag[OUTCOME, j] = WALLTIME
    begin = now
    if sim.node.shape[1] > 0:
        place(j, rules.placement, machine, sim, work)
        begin = nodes_ready(j, now, sim)
    sim.flag[STATE, j] = RUNNING
    sim.time[START, j] = begin
    sim.time[END, j] = begin + length
    sim.count[STARTS] += 1
    for p in range(pools):
        sim.amount[FREE, p] -= work.take[p]
        if pools > 1:
            sim.take[j, p] = work.take[p]
    for c in range(jobs.resources.shape[1]):
        sim.amount[FREE, pools + c] -= jobs.resources[j, c]
    if sim.user_running.shape[1] > 0:
        sim.user_running[machine.partition[jobs.fixed[KIND, j]], jobs.fixed[USER, j]] += 1
    if sim.time.shape[0] > HELD:
        sim.time[HELD, j] = -1
    account(j, RETURN, now, jobs, machine, sim, rules)
    if sim.node.shape[1] > 0:
        note_segments(j, sim)
    heap_push(sim.running, sim.count, ENDS, sim.time[END, j], j)
    run_insert(j, begin + jobs.fixed[EXPECTED, j], sim)
    if sim.flag[STARTED, j] == 0:
        sim.flag[STARTED, j] = 1
        for e in range(jobs.edge_first[j], jobs.edge_first[j + 1]):
            if jobs.edges[EDGE_KIND, e] == AFTER:
                come_true(jobs.edges[EDGE_JOB, e], begin + jobs.edges[EDGE_DELAY, e], jobs, sim)


@jit()
def give_back(
    j: int, now: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """Return the nodes and resources of a running job."""
    pools = machine.speed.shape[0]
    load_take(j, pools, jobs, sim, work)
    for p in range(pools):
        sim.amount[FREE, p] += work.take[p]
    for c in range(jobs.resources.shape[1]):
        sim.amount[FREE, pools + c] += jobs.resources[j, c]
    if sim.user_running.shape[1] > 0:
        sim.user_running[machine.partition[jobs.fixed[KIND, j]], jobs.fixed[USER, j]] -= 1
    account(j, TAKE, now, jobs, machine, sim, rules)
    if sim.node.shape[1] > 0:
        release_nodes(j, sim)
    planned = sim.time[START, j] + jobs.fixed[EXPECTED, j]
    if planned != now:
        sim.count[COMPRESS] = 1
    run_remove(j, planned, sim)


@jit()
def end_job(
    j: int, state: int, now: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """A running job ends; its entry is off the heap of ends already."""
    give_back(j, now, jobs, machine, sim, rules, work)
    settle(j, state, now, jobs, sim, rules, work)


@jit()
def interrupt(j: int, now: int, jobs: Jobs, sim: Sim) -> None:
    """Take the end of a running job, which comes otherwise, off the heap of ends."""
    heap_remove(sim.running, sim.count, ENDS, j)


@jit()
def throw_back(
    order: Order, j: int, now: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """A running job whose node failed waits again, as if it had never started."""
    give_back(j, now, jobs, machine, sim, rules, work)
    n = sim.count[LOST]
    sim.lost[LOST_JOB, n] = j
    sim.lost[LOST_START, n] = sim.time[START, j]
    sim.lost[LOST_END, n] = now
    sim.count[LOST] = n + 1
    sim.number[REQUEUES, j] += 1
    sim.time[START, j] = -1
    sim.time[END, j] = -1
    enqueue(order, j, jobs, sim, rules, work)


@jit()
def come_true(j: int, time: int, jobs: Jobs, sim: Sim) -> None:
    """One dependency of a job comes true at ``time``."""
    sim.number[OPEN, j] -= 1
    if time > sim.time[RELEASE, j]:
        sim.time[RELEASE, j] = time
    if sim.number[OPEN, j] == 0 and sim.flag[DEAD, j] == 0 and sim.flag[STATE, j] == PENDING:
        heap_push(sim.releases, sim.count, RELEASES, sim.time[RELEASE, j], j)


@jit()
def hold_for_ever(j: int, jobs: Jobs, sim: Sim) -> None:
    """A job whose dependency failed stays pending; nothing waits for it unless it is cancelled."""
    if jobs.fixed[CANCEL, j] >= NEVER:
        sim.count[ALIVE] -= 1


@jit()
def close(j: int, state: int, now: int, sim: Sim) -> None:
    """A job has come to its end in a state; those that wait for it are not told yet."""
    sim.flag[STATE, j] = state
    sim.time[END, j] = now
    sim.count[ALIVE] -= 1


@jit()
def settle(j: int, state: int, now: int, jobs: Jobs, sim: Sim, rules: Rules, work: Work) -> None:
    """A job has come to its end in a state; tell those that wait for it, and theirs."""
    close(j, state, now, sim)
    tell(j, now, jobs, sim, rules, work)


@jit()
def tell(j: int, now: int, jobs: Jobs, sim: Sim, rules: Rules, work: Work) -> None:
    """Tell those that wait for a job that it has ended; some may end by that, and so on."""
    if jobs.edges.shape[1] == 0:
        return
    work.job[STACK, 0] = j
    depth = 1
    while depth > 0:
        depth -= 1
        ended = work.job[STACK, depth]
        for e in range(jobs.edge_first[ended], jobs.edge_first[ended + 1]):
            other = jobs.edges[EDGE_JOB, e]
            kind = jobs.edges[EDGE_KIND, e]
            if kind == AFTER and sim.flag[STARTED, ended] == 1:
                continue
            if kind != AFTEROK or sim.flag[STATE, ended] == COMPLETED:
                come_true(other, now + jobs.edges[EDGE_DELAY, e], jobs, sim)
                continue
            if sim.flag[DEAD, other] == 1 or FAILED >= sim.flag[STATE, other] >= COMPLETED:
                continue
            sim.flag[DEAD, other] = 1
            if sim.flag[STATE, other] == UNSUBMITTED:
                continue
            if rules.hold_dependents == 1:
                hold_for_ever(other, jobs, sim)
            else:
                close(other, DEPENDENCY, now, sim)
                work.job[STACK, depth] = other
                depth += 1
