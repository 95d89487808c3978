"""The queue of pending jobs and its order."""

from __future__ import annotations

import math

from hpctwin.engine.compile.intrinsics import (
    call_with_job,
    move_rows,
    scored_by,
    scored_with,
    update_state,
)
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.compile.policy_modules import JobView
from hpctwin.engine.state.layout import BY_USER, NEVER, UNRACED, WAITING, ZERO, Arrays


@jit
def decayed(label: int, sim: Arrays) -> float:
    """Return the node-ms that a label has used, decayed to now.

    It is exact as long as the label's number of nodes does not change.
    """
    usage = sim.usage[label]
    if usage.at == sim.clock.now:
        return usage.used
    rate = sim.rules.decay
    steady = usage.nodes / rate
    return (usage.used - steady) * math.exp(-rate * (sim.clock.now - usage.at)) + steady


@jit
def fair_of(label: int, total: float, sim: Arrays) -> tuple[float, float]:
    """Return what orderings see of a label: its factor and its decayed usage, node-s.

    The factor is 2^-(usage/share), or the rank in a tree of fair shares.

    Args:
        label: Row of ``usage``.
        total: Usage of all labels, node-ms.
        sim: Simulation.
    """
    use = decayed(label, sim)
    factor = 1.0
    if len(sim.tree) > 0:
        factor = sim.rank[label]
    elif total > 0.0:
        factor = 2.0 ** (-(use / total) / sim.promised[label])
    return factor, use / 1000.0


@jit
def reckon_fairshare(sim: Arrays) -> None:
    """Compute what orderings see of all labels, if an ordering uses it."""
    if sim.rules.fairshare == 0:
        return
    labels = len(sim.promised)
    total = decayed(labels, sim)
    for label in range(labels):
        factor, current = fair_of(label, total, sim)
        sim.fair[label].factor = factor
        sim.fair[label].current = current


@jit
def submitted_at(j: int, sim: Arrays) -> int:
    """Return when a job is submitted, ms.

    A job with a think time is submitted when it becomes eligible; before that the result is
    `NEVER`.
    """
    if sim.job[j].thinks == 0:
        return sim.job[j].submit
    return sim.state[j].eligible if sim.state[j].eligible >= 0 else NEVER


@jit
def submitted_before(a: int, b: int, sim: Arrays) -> bool:
    """Return whether job a was submitted before job b; ties go by id."""
    at_a = submitted_at(a, sim)
    at_b = submitted_at(b, sim)
    if at_a != at_b:
        return at_a < at_b
    return sim.job[a].rank < sim.job[b].rank


@jit
def seen(j: int, now: int, factor: float, current: float, sim: Arrays) -> JobView:
    """Return a job as orderings and placements see it.

    Args:
        j: Job.
        now: Time of the view, ms.
        factor: Fair-share factor of its label.
        current: Usage of its label, node-s.
        sim: Simulation.
    """
    job = sim.job[j]
    # If no ordering or placement uses facts, one row of them serves all jobs.
    fact = sim.fact[j * sim.rules.facts]
    state = sim.state[j]
    submit = submitted_at(j, sim)
    return JobView(
        submit / 1000.0,
        state.eligible / 1000.0,
        (now - submit) / 1000.0,
        job.limit / 1000.0,
        (job.expected - sim.rules.cleanup) / 1000.0,
        float(job.nodes),
        fact.cores,
        fact.gpus,
        fact.memory_gb,
        fact.user,
        fact.account,
        fact.partition,
        fact.qos,
        fact.partition_priority,
        fact.qos_priority,
        fact.priority,
        factor,
        current,
        float(sim.rules.machine_nodes),
        float(state.requeues),
        fact.dominant,
        fact.load,
        fact.cpu,
        fact.memory_mb,
        state.chain / 1000.0,
        fact.risk,
        fact.predicted_runtime,
        fact.predicted_power,
        fact.communication,
    )


@jit
def score(order: int, j: int, sim: Arrays) -> float:
    """Return the present score of a pending job under an ordering."""
    if sim.hooks.score != 0 and order == sim.hooks.order:
        call_with_job(sim.hooks.score, j, sim)
        return sim.state[j].key
    factor, current = fair_share(j, sim)
    return score_at(order, j, sim.clock.now, factor, current, sim)


@jit
def fair_share(j: int, sim: Arrays) -> tuple[float, float]:
    """Return factor and usage of a job's fair-share label; 1 and 0 if no ordering uses them."""
    if sim.rules.fairshare == 0:
        return 1.0, 0.0
    fair = sim.fair[sim.job[j].share]
    return fair.factor, fair.current


def score_with_state(j: int, sim: Arrays) -> None:
    """Set a job's key to its present score under an ordering with state."""
    now = sim.clock.now
    factor, current = fair_share(j, sim)
    view = seen(j, now, factor, current, sim)
    sim.state[j].key = scored_with(
        sim.hooks.order, now / 1000.0, view, sim.user_state, state_row(j, sim)
    )


@jit
def score_at(order: int, j: int, now: int, factor: float, current: float, sim: Arrays) -> float:
    """Return a pending job's score at a time, with a fair-share factor and usage."""
    return scored_by(order, now / 1000.0, seen(j, now, factor, current, sim))


@jit
def state_row(j: int, sim: Arrays) -> int:
    """Return the row of the ordering's state for a job's user or account."""
    fact = sim.fact[j]
    return 1 + (fact.user if sim.rules.user_state == BY_USER else fact.account)


@jit
def update_user(update: int, j: int, sim: Arrays) -> None:
    """Let one of the ordering's functions change the state of a job's user or account."""
    now = sim.clock.now
    view = seen(j, now, 1.0, 0.0, sim)
    update_state(update, now / 1000.0, view, sim.user_state, state_row(j, sim))


@jit
def note_start(j: int, sim: Arrays) -> None:
    """Update the state of the user of a job that starts."""
    update_user(sim.hooks.started, j, sim)


@jit
def note_end(j: int, sim: Arrays) -> None:
    """Update the state of the user of a job that returns its nodes."""
    update_user(sim.hooks.ended, j, sim)


@jit
def before(score_a: float, a: int, score_b: float, b: int, sim: Arrays) -> bool:
    """Return whether job a precedes job b: by score, then submit time, then id."""
    if score_a != score_b:
        return score_a < score_b
    return submitted_before(a, b, sim)


@jit
def enqueue(j: int, sim: Arrays) -> None:
    """Add a job to the queue.

    The queue stays sorted if the ordering does not change with time.
    """
    sim.state[j].phase = WAITING
    if len(sim.tried) > 0:
        sim.tried[sim.job[j].kind].waiting += 1
    if sim.hooks.entered != 0:
        call_with_job(sim.hooks.entered, j, sim)
    n = sim.clock.queued
    sim.clock.queued = n + 1
    sim.clock.moves += 1
    sim.queue[n] = j
    if sim.race.valid != UNRACED:
        note_fresh(j, sim)
    if sim.rules.order_changes == 1:
        return
    own = score(sim.hooks.order, j, sim)
    if own != own:
        sim.clock.bad_job = j
    sim.state[j].key = own
    # A tournament needs no order; the rest is sorted when a pass needs it.
    if sim.race.valid == 1 or sim.race.unsorted > 0:
        sim.race.unsorted += 1
    else:
        put_in_order(n, sim)


@jit
def note_fresh(j: int, sim: Arrays) -> None:
    """Record an arriving job that has no place in the tournament yet."""
    race = sim.race
    if race.fresh == len(sim.fresh):
        race.valid = 0
        return
    sim.fresh[race.fresh] = j
    race.fresh += 1


@jit
def note_back(user: int, sim: Arrays) -> None:
    """Record that a user at the limit of running jobs has one job less."""
    race = sim.race
    if race.back == len(sim.back):
        race.valid = 0
        return
    sim.back[race.back] = user
    race.back += 1


@jit
def pays(least: int, kind: int, sim: Arrays) -> bool:
    """Return whether a tournament or list of lines pays off for the present queue.

    If one exists, half as many jobs are enough.

    Args:
        least: Pending jobs from which it pays off.
        kind: `RACED` or `LINED`.
        sim: Simulation.
    """
    waiting = sim.clock.queued - sim.race.gone
    return waiting >= least or (sim.race.valid == kind and 2 * waiting >= least)


@jit
def put_in_order(n: int, sim: Arrays) -> None:
    """Move the job at place ``n`` of the queue to its place among the jobs before it."""
    j = sim.queue[n]
    own = sim.state[j].key
    if n == 0 or not before(own, j, sim.state[sim.queue[n - 1]].key, sim.queue[n - 1], sim):
        return
    sim.walk.valid = 0
    low = 0
    high = n
    while low < high:
        middle = (low + high) // 2
        other = sim.queue[middle]
        if before(own, j, sim.state[other].key, other, sim):
            high = middle
        else:
            low = middle + 1
    for i in range(n, low, -1):
        sim.queue[i] = sim.queue[i - 1]
    sim.queue[low] = j


@jit
def dequeue(j: int, sim: Arrays) -> None:
    """Remove one job from the queue."""
    sim.walk.valid = 0
    i = 0
    while sim.queue[i] != j:
        i += 1
    n = sim.clock.queued - 1
    sim.clock.queued = n
    if sim.race.unsorted > n - i:
        sim.race.unsorted -= 1
    move_rows(sim.queue, i, i + 1, n + 1)


@jit
def leave(j: int, sim: Arrays) -> None:
    """Remove a job that leaves without having started from the queue."""
    dequeue(j, sim)
    sim.clock.moves += 1
    if len(sim.tried) > 0:
        sim.tried[sim.job[j].kind].waiting -= 1
    if sim.hooks.left != 0:
        call_with_job(sim.hooks.left, j, sim)


@jit
def drop_started(sim: Arrays) -> None:
    """Remove all jobs that are no longer pending from the queue, and keep its order."""
    race = sim.race
    walk = sim.walk
    known = walk.known if walk.valid == 1 else 0
    walk.known = 0
    walk.fewest = NEVER
    walk.settled = 0
    kept = 0
    unsorted = 0
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        if sim.state[j].phase == WAITING:
            sim.queue[kept] = j
            if i < known:
                ahead = sim.ahead[i]
                sim.ahead[kept].nodes = ahead.nodes
                sim.ahead[kept].expected = ahead.expected
                walk.fewest = min(walk.fewest, ahead.nodes)
                walk.known = kept + 1
            kept += 1
            if i >= sim.clock.queued - race.unsorted:
                unsorted += 1
    sim.clock.queued = kept
    race.unsorted = unsorted
    race.gone = 0


@jit
def cache_queue_rows(sim: Arrays) -> None:
    """Copy the fields that a walk reads first, for all pending jobs.

    Rows that were copied before are reused.
    """
    walk = sim.walk
    if walk.valid == 0:
        walk.valid = 1
        walk.known = 0
        walk.fewest = NEVER
        walk.settled = 0
    for i in range(walk.known, sim.clock.queued):
        job = sim.job[sim.queue[i]]
        sim.ahead[i].nodes = job.nodes
        sim.ahead[i].expected = job.expected
        walk.fewest = min(walk.fewest, job.nodes)
    walk.known = sim.clock.queued


@jit
def tidy_queue(sim: Arrays) -> None:
    """Restore the queue's invariants: it holds pending jobs only, and in order.

    It is in order only if the ordering does not change with time.
    """
    if sim.race.gone > 0:
        drop_started(sim)
    for i in range(sim.clock.queued - sim.race.unsorted, sim.clock.queued):
        put_in_order(i, sim)
    sim.race.unsorted = 0


@jit
def sift(n: int, i: int, sim: Arrays) -> None:
    """Sink entry ``i`` in the order heap of ``n`` jobs to its place."""
    heap = sim.order
    j = heap[i].job
    own = heap[i].score
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        other = child + 1
        if other < n and before(
            heap[other].score, heap[other].job, heap[child].score, heap[child].job, sim
        ):
            child = other
        if before(own, j, heap[child].score, heap[child].job, sim):
            break
        heap[i].job = heap[child].job
        heap[i].score = heap[child].score
        i = child
    heap[i].job = j
    heap[i].score = own


@jit
def heap_order(n: int, sim: Arrays) -> None:
    """Turn the first ``n`` entries of the order into a heap."""
    for i in range(n // 2 - 1, -1, -1):
        sift(n, i, sim)


@jit
def pop_order(n: int, sim: Arrays) -> int:
    """Remove the first job from the order heap of ``n`` jobs; return it."""
    first = sim.order[0].job
    sim.order[0].job = sim.order[n - 1].job
    sim.order[0].score = sim.order[n - 1].score
    sift(n - 1, ZERO, sim)
    return first


@jit
def order_queue(sim: Arrays) -> int:
    """Fill the order heap with the whole queue; return the queue's length.

    A queue that is kept sorted is a valid heap already.
    """
    n = sim.clock.queued
    order = sim.hooks.order
    changes = sim.rules.order_changes == 1
    for i in range(n):
        j = sim.queue[i]
        sim.order[i].job = j
        if not changes:
            sim.order[i].score = sim.state[j].key
            continue
        own = score(order, j, sim)
        sim.order[i].score = own
        if own != own:
            sim.clock.bad_job = j
    if changes:
        heap_order(n, sim)
    return n


@jit
def order_jobs(sim: Arrays) -> int:
    """Put the pending jobs in order, for `job_at`; return how many there are."""
    reckon_fairshare(sim)
    return order_queue(sim) if sim.rules.order_changes == 1 else sim.clock.queued


@jit
def job_at(i: int, size: int, sim: Arrays) -> int:
    """Return job ``i`` in order; call it for 0, 1, 2 and so on."""
    return pop_order(size - i, sim) if sim.rules.order_changes == 1 else sim.queue[i]


@jit
def job_left(i: int, first: int, sim: Arrays) -> int:
    """Return a job of the rest after `job_at` has returned ``first``, in any order."""
    return sim.order[i].job if sim.rules.order_changes == 1 else sim.queue[first + i]


@jit
def is_sorted(sim: Arrays) -> bool:
    """Return whether the queue is kept in the order of jobs and of candidates."""
    return sim.rules.order_changes == 0 and sim.rules.own_candidates == 0


@jit
def order_candidates(later: int, sim: Arrays) -> None:
    """Fill the order heap with the first ``later`` jobs of ``sim.later``.

    They are in the candidates' order.
    """
    rules = sim.rules
    for i in range(later):
        j = sim.later[i]
        sim.order[i].job = j
        if rules.own_candidates == 0 and rules.order_changes == 0:
            own = sim.state[j].key
        elif rules.own_candidates == 0:
            own = score(sim.hooks.order, j, sim)
        else:
            own = score(sim.hooks.candidates, j, sim)
        sim.order[i].score = own
        if own != own:
            sim.clock.bad_job = j
    heap_order(later, sim)


@jit
def sort_listed(size: int, sim: Arrays) -> None:
    """Put the first ``size`` jobs of ``sim.later`` in the candidates' order."""
    order_candidates(size, sim)
    for i in range(size):
        sim.later[i] = pop_order(size - i, sim)
