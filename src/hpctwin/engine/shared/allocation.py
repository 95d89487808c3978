"""Allocation of shared nodes to jobs, and their release."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import active_from, plan_change
from hpctwin.engine.compile.intrinsics import call_with_job
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.heap import heap_push
from hpctwin.engine.containers.node_sets import touch
from hpctwin.engine.jobs.running_jobs import run_insert
from hpctwin.engine.jobs.transitions import account, next_end, note_given, scaled
from hpctwin.engine.queue.limits import hold
from hpctwin.engine.shared.fit import FREED, goes_at
from hpctwin.engine.shared.fit_cache import drop_leaving, open_node, put_leaving
from hpctwin.engine.shared.node_resources import copy_row, give_held, take_held
from hpctwin.engine.shared.total_free import start_in_sums
from hpctwin.engine.state.layout import COMPLETED, FAILED, ONE, RUNNING, TAKE, WALLTIME, Arrays


@jit
def add_part(j: int, node: int, tasks: int, kind: int, sim: Arrays) -> None:
    """Start a job's tasks of one kind on a node."""
    row = sim.sharing.parts
    sim.sharing.parts = row + 1
    part = sim.part[row]
    share = sim.share[node]
    part.job = j
    part.kind = kind
    part.start = sim.state[j].start
    part.planned = part.start + sim.job[j].expected
    part.node = node
    part.tasks = tasks
    part.next = sim.state[j].first_node
    part.before = -1
    part.after = share.part
    if share.part >= 0:
        sim.part[share.part].before = row
    share.part = row
    sim.state[j].first_node = row
    if share.jobs == 0:
        sim.stock[sim.pool_of[node]].free -= 1
    share.jobs += 1
    sim.node[node].job = j
    put_leaving(node, part.planned, kind, tasks, sim)
    sim.moves[node] += 1
    take_held(kind, node, tasks, sim.left, node, sim)
    if sim.rules.depths > 0:
        touch(node, sim)


@jit
def drop_part(row: int, sim: Arrays) -> None:
    """End tasks of a job on a node; the row stays, as a record."""
    part = sim.part[row]
    node = part.node
    share = sim.share[node]
    if part.before >= 0:
        sim.part[part.before].after = part.after
    else:
        share.part = part.after
    if part.after >= 0:
        sim.part[part.after].before = part.before
    share.jobs -= 1
    sim.node[node].job = -1 if share.part < 0 else sim.part[share.part].job
    if share.jobs == 0:
        sim.stock[sim.pool_of[node]].free += 1
    give_held(part.kind, node, part.tasks, sim.left, node, sim)
    open_node(node, sim)
    drop_leaving(node, part.planned, part.kind, part.tasks, sim)
    sim.moves[node] += 1
    sim.freed[sim.sharing.freed % FREED] = node
    sim.sharing.freed += 1
    if sim.rules.depths > 0:
        touch(node, sim)


@jit
def duration_shared(j: int, sim: Arrays) -> int:
    """Return how long a job runs on the chosen nodes if nothing ends it, ms."""
    slowest = sim.pool_of[sim.chosen_nodes[0]]
    for n in range(1, sim.sharing.chosen):
        p = sim.pool_of[sim.chosen_nodes[n]]
        if sim.pool[p].speed < sim.pool[slowest].speed:
            slowest = p
    pool = sim.pool[slowest]
    if pool.speed == 1.0:
        return sim.job[j].runtime
    return scaled(sim.job[j].runtime, pool.top, pool.bottom)


@jit
def start_shared(j: int, sim: Arrays) -> None:
    """Start a pending job on the chosen nodes, as soon as they are switched on."""
    job = sim.job[j]
    state = sim.state[j]
    begin = sim.clock.now
    if sim.rules.depths > 0:
        for n in range(sim.sharing.chosen):
            begin = max(begin, active_from(sim.chosen_nodes[n], sim))
    length = duration_shared(j, sim)
    state.outcome = COMPLETED if job.fails == 0 else FAILED
    if sim.rules.terminate == 1 and length > job.limit:
        length = job.limit
        state.outcome = WALLTIME
    state.phase = RUNNING
    state.start = begin
    state.end = begin + length
    state.first_node = -1
    sim.clock.starts += 1
    sim.tried[job.kind].waiting -= 1
    for n in range(sim.sharing.chosen):
        add_part(j, sim.chosen_nodes[n], sim.chosen_tasks[n], sim.of_kind[n], sim)
        sim.sharing.turn = sim.chosen_nodes[n] + 1
    for c in range(sim.asks.width):
        sim.stock[sim.rules.pools + c].free -= sim.asks[j, c]
    if sim.user_running.width > 0:
        sim.user_running[sim.partition[job.kind], job.user] += 1
    if len(sim.held) > 0:
        hold(j, ONE, sim)
    account(j, sim.shape[job.kind].charge, sim)
    if sim.hooks.note_start != 0:
        call_with_job(sim.hooks.note_start, j, sim)
    sim.clock.ends = heap_push(sim.ends, sim.clock.ends, next_end(j, sim), j)
    run_insert(j, begin + job.expected, sim)
    start_in_sums(j, sim)
    note_given(j, sim)


@jit
def take_from_promises(j: int, since: int, sim: Arrays) -> None:
    """Subtract what a job that just started holds from what is left to reservations.

    These are the reservations that begin from ``since`` on, while the job is expected to run. The
    job's cluster-wide resources are taken out of the plan from ``since`` on.
    """
    end = sim.state[j].start + sim.job[j].expected
    row = sim.state[j].first_node
    while row >= 0:
        part = sim.part[row]
        p = sim.share[part.node].promise
        while p >= 0 and sim.promise[p].start < end:
            if since <= sim.promise[p].start:
                take_held(part.kind, part.node, part.tasks, sim.promise_left, p, sim)
            p = sim.promise[p].after
        row = part.next
    take_resources(j, since, end, TAKE, sim)


@jit
def take_resources(j: int, start: int, end: int, sign: int, sim: Arrays) -> None:
    """Take a job's cluster-wide resources out of a span of the plan, or return them."""
    if sim.asks.width > 0:
        for p in range(sim.rules.pools):
            sim.take[p] = 0
        plan_change(j, start, end, sign, sim)


@jit
def give_to_promises(row: int, sim: Arrays) -> None:
    """Add what ended tasks held to what is left to reservations during their planned time."""
    part = sim.part[row]
    p = sim.share[part.node].promise
    while p >= 0 and sim.promise[p].start < part.planned:
        give_held(part.kind, part.node, part.tasks, sim.promise_left, p, sim)
        p = sim.promise[p].after


def gave_back(j: int, sim: Arrays) -> None:
    """Release all nodes of a running job."""
    row = sim.state[j].first_node
    while row >= 0:
        if sim.rooms.linked == 1:
            give_to_promises(row, sim)
        drop_part(row, sim)
        if sim.state[j].start > sim.clock.now:
            sim.part[row].tasks = 0  # it never began there
        row = sim.part[row].next
    sim.state[j].first_node = -1
    account(j, -sim.shape[sim.job[j].kind].charge, sim)
    if sim.hooks.note_end != 0:
        call_with_job(sim.hooks.note_end, j, sim)


@jit
def put_back(j: int, sim: Arrays) -> None:
    """Add what a running job holds to ``sim.free_at``."""
    row = sim.state[j].first_node
    while row >= 0:
        part = sim.part[row]
        give_held(part.kind, part.node, part.tasks, sim.free_at, part.node, sim)
        row = part.next


@jit
def free_at(node: int, time: int, sim: Arrays) -> None:
    """Set ``sim.free_at`` of a node to what running jobs leave free at a time."""
    copy_row(sim.left, node, sim.free_at, node)
    p = sim.share[node].part
    while p >= 0:
        part = sim.part[p]
        if goes_at(part.job, sim) <= time:
            give_held(part.kind, node, part.tasks, sim.free_at, node, sim)
        p = part.after
