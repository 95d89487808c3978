"""The queue and its order."""

from __future__ import annotations

import math

from hpctwin.engine.abi import JobView, Order
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    BAD_JOB,
    CHAIN,
    CURRENT,
    ELIGIBLE,
    EXPECTED,
    FACT_ACCOUNT,
    FACT_CORES,
    FACT_CPU,
    FACT_DOMINANT,
    FACT_GPUS,
    FACT_LOAD,
    FACT_MEMORY,
    FACT_MEMORY_MB,
    FACT_PARTITION,
    FACT_PARTITION_PRIORITY,
    FACT_PRIORITY,
    FACT_QOS,
    FACT_QOS_PRIORITY,
    FACT_RISK,
    FACT_USER,
    FACTOR,
    FRESH,
    LATER,
    LIMIT,
    NODES,
    NOW,
    OLDEST,
    ORDER,
    QUEUE,
    QUEUED,
    RANK,
    REQUEUES,
    SHARE,
    STATE,
    SUBMIT,
    USED,
    USED_AT,
    USED_NODES,
    WAITING,
    ZERO,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.lists import list_begin, list_remove


@jit()
def decayed(label: int, now: int, sim: Sim, rules: Rules) -> float:
    """Node-ms that a label has used, decayed to ``now``; exact while its nodes do not change."""
    elapsed = now - sim.usage[USED_AT, label]
    rate = rules.decay
    steady = sim.usage[USED_NODES, label] / rate
    return (sim.usage[USED, label] - steady) * math.exp(-rate * elapsed) + steady


@jit()
def fairshare_factors(now: int, machine: Machine, sim: Sim, rules: Rules, work: Work) -> None:
    """Fill ``work.current`` (decayed use) and ``work.factor`` (2^-(use/share)) for all labels."""
    labels = machine.share.shape[0]
    total = decayed(labels, now, sim, rules)
    for label in range(labels):
        use = decayed(label, now, sim, rules)
        work.share[CURRENT, label] = use / 1000.0
        work.share[FACTOR, label] = 1.0
        if total > 0.0:
            work.share[FACTOR, label] = 2.0 ** (-(use / total) / machine.share[label])


@jit()
def score(order: Order, j: int, now: int, jobs: Jobs, sim: Sim, rules: Rules, work: Work) -> float:
    """What the ordering gives a waiting job."""
    submit = jobs.fixed[SUBMIT, j] / 1000.0
    seconds = now / 1000.0
    factor = 1.0
    current = 0.0
    if rules.fairshare == 1:
        factor = work.share[FACTOR, jobs.fixed[SHARE, j]]
        current = work.share[CURRENT, jobs.fixed[SHARE, j]]
    return order(
        seconds,
        JobView(
            submit,
            sim.time[ELIGIBLE, j] / 1000.0,
            (now - jobs.fixed[SUBMIT, j]) / 1000.0,
            jobs.fixed[LIMIT, j] / 1000.0,
            jobs.fixed[EXPECTED, j] / 1000.0,
            float(jobs.fixed[NODES, j]),
            jobs.facts[j, FACT_CORES],
            jobs.facts[j, FACT_GPUS],
            jobs.facts[j, FACT_MEMORY],
            jobs.facts[j, FACT_USER],
            jobs.facts[j, FACT_ACCOUNT],
            jobs.facts[j, FACT_PARTITION],
            jobs.facts[j, FACT_QOS],
            jobs.facts[j, FACT_PARTITION_PRIORITY],
            jobs.facts[j, FACT_QOS_PRIORITY],
            jobs.facts[j, FACT_PRIORITY],
            factor,
            current,
            float(rules.machine_nodes),
            float(sim.number[REQUEUES, j]),
            jobs.facts[j, FACT_DOMINANT],
            jobs.facts[j, FACT_LOAD],
            jobs.facts[j, FACT_CPU],
            jobs.facts[j, FACT_MEMORY_MB],
            sim.number[CHAIN, j] / 1000.0,
            jobs.facts[j, FACT_RISK],
        ),
    )


@jit()
def before(score_a: float, a: int, score_b: float, b: int, jobs: Jobs) -> bool:
    """Whether job a comes before job b: by score, then submit time, then id."""
    if score_a != score_b:
        return score_a < score_b
    if jobs.fixed[SUBMIT, a] != jobs.fixed[SUBMIT, b]:
        return jobs.fixed[SUBMIT, a] < jobs.fixed[SUBMIT, b]
    return jobs.fixed[RANK, a] < jobs.fixed[RANK, b]


@jit()
def enqueue(order: Order, j: int, jobs: Jobs, sim: Sim, rules: Rules, work: Work) -> None:
    """Put a job into the queue; the queue is sorted where the ordering does not change."""
    sim.flag[STATE, j] = WAITING
    sim.count[OLDEST] = min(sim.count[OLDEST], sim.time[ELIGIBLE, j])
    if sim.push.shape[1] > 0:
        list_begin(j, FRESH, sim.push)
    n = sim.count[QUEUED]
    sim.count[QUEUED] = n + 1
    if rules.order_changes == 1:
        sim.number[QUEUE, n] = j
        return
    own = score(order, j, sim.count[NOW], jobs, sim, rules, work)
    if own != own:
        sim.count[BAD_JOB] = j
    sim.key[j] = own
    low = 0
    high = n
    while low < high:
        middle = (low + high) // 2
        other = sim.number[QUEUE, middle]
        if before(own, j, sim.key[other], other, jobs):
            high = middle
        else:
            low = middle + 1
    for i in range(n, low, -1):
        sim.number[QUEUE, i] = sim.number[QUEUE, i - 1]
    sim.number[QUEUE, low] = j


@jit()
def dequeue(j: int, sim: Sim) -> None:
    """Take one job out of the queue."""
    if sim.push.shape[1] > 0:
        list_remove(j, sim.push)
    i = 0
    while sim.number[QUEUE, i] != j:
        i += 1
    n = sim.count[QUEUED] - 1
    sim.count[QUEUED] = n
    for k in range(i, n):
        sim.number[QUEUE, k] = sim.number[QUEUE, k + 1]


@jit()
def drop_started(sim: Sim) -> None:
    """Take all jobs that no longer wait out of the queue."""
    kept = 0
    for i in range(sim.count[QUEUED]):
        j = sim.number[QUEUE, i]
        if sim.flag[STATE, j] == WAITING:
            sim.number[QUEUE, kept] = j
            kept += 1
    sim.count[QUEUED] = kept


@jit()
def sift(work: Work, n: int, i: int, jobs: Jobs) -> None:
    """Sink entry ``i`` of the order heap of ``n`` jobs to its place."""
    j = work.job[ORDER, i]
    own = work.score[i]
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        other = child + 1
        if other < n and before(
            work.score[other],
            work.job[ORDER, other],
            work.score[child],
            work.job[ORDER, child],
            jobs,
        ):
            child = other
        if before(own, j, work.score[child], work.job[ORDER, child], jobs):
            break
        work.job[ORDER, i] = work.job[ORDER, child]
        work.score[i] = work.score[child]
        i = child
    work.job[ORDER, i] = j
    work.score[i] = own


@jit()
def heap_order(n: int, work: Work, jobs: Jobs) -> None:
    """Make a heap of the first ``n`` entries of the order."""
    for i in range(n // 2 - 1, -1, -1):
        sift(work, n, i, jobs)


@jit()
def pop_order(n: int, work: Work, jobs: Jobs) -> int:
    """Take the first job off the order heap of ``n`` jobs."""
    first = work.job[ORDER, 0]
    work.job[ORDER, 0] = work.job[ORDER, n - 1]
    work.score[0] = work.score[n - 1]
    sift(work, n - 1, ZERO, jobs)
    return first


@jit()
def order_queue(order: Order, now: int, jobs: Jobs, sim: Sim, rules: Rules, work: Work) -> int:
    """Heap the whole queue in the ordering's order; returns its length."""
    n = sim.count[QUEUED]
    for i in range(n):
        j = sim.number[QUEUE, i]
        work.job[ORDER, i] = j
        if rules.order_changes == 0:
            work.score[i] = sim.key[j]
            continue
        own = score(order, j, now, jobs, sim, rules, work)
        work.score[i] = own
        if own != own:
            sim.count[BAD_JOB] = j
    if rules.order_changes == 1:
        heap_order(n, work, jobs)
    return n


@jit()
def order_candidates(
    order: Order,
    candidate_order: Order,
    later: int,
    now: int,
    jobs: Jobs,
    sim: Sim,
    rules: Rules,
    work: Work,
) -> None:
    """Heap the ``later`` jobs in ``work.later`` in the candidates' order."""
    for i in range(later):
        j = work.job[LATER, i]
        work.job[ORDER, i] = j
        if rules.own_candidate_order == 0 and rules.order_changes == 0:
            own = sim.key[j]
        elif rules.own_candidate_order == 0:
            own = score(order, j, now, jobs, sim, rules, work)
        else:
            own = score(candidate_order, j, now, jobs, sim, rules, work)
        work.score[i] = own
        if own != own:
            sim.count[BAD_JOB] = j
    heap_order(later, work, jobs)
