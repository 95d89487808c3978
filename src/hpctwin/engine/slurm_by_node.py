"""Slurm's scheduler with reservations of particular nodes.

`passes.slurm` has the other parts. As in Slurm's backfill plugin and its node selection without a
topology (22.05: ``backfill.c``, ``select_linear.c``), a job may get the nodes that no job has
reserved while it would run (`node_reservations`). As running jobs end one after the other, it gets
the shortest sufficient run of node numbers.
"""

from __future__ import annotations

from numba import int64, types

from hpctwin.engine.capacity.node_reservations import (
    CLEAR,
    FREE,
    PICKED,
    has,
    is_reserved,
    lowest,
    narrow,
    open_spans,
    put_in,
    reserve,
    size_of,
)
from hpctwin.engine.capacity.plan import fits_at_once
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM
from hpctwin.engine.jobs.transitions import start_job
from hpctwin.engine.passes import Pass
from hpctwin.engine.passes.slurm import (
    Numbers,
    Own,
    begin,
    begin_look,
    block,
    depth_of,
    fits_unblocked,
    is_due,
    is_young,
    jobs_in_order,
    look_from,
    may_be_tried,
    may_reserve,
    nth,
    open_all,
    own,
    set_timers,
    settings,
    span_begin,
    span_end,
    takes_part,
)
from hpctwin.engine.placement.job_nodes import claim
from hpctwin.engine.queue.eligibility import is_skipped, may_start
from hpctwin.engine.queue.order import reckon_fairshare
from hpctwin.engine.state.layout import NEVER, WAITING, ZERO, Arrays

__all__ = ["PASS", "PLACE_PICKED"]

SECOND_MS = 1000


@jit
def only_free(sim: Arrays) -> int:
    """Pick the free nodes that a job may have while it would run; return how many."""
    for w in range(sim.sets.width):
        sim.sets[PICKED, w] = sim.sets[FREE, w] & sim.sets[CLEAR, w]
    return size_of(PICKED, sim)


@jit
def may_be_clear(j: int, sim: Arrays) -> bool:
    """Return whether enough free nodes are unreserved while a job would run.

    Only reservations made so far that begin in that time count.
    """
    kind = sim.job[j].kind
    until = sim.clock.now + sim.job[j].expected
    found = ZERO
    for w in range(sim.sets.width):
        word = sim.sets[FREE, w]
        while word != 0:
            node = lowest(w, word)
            word &= word - 1
            if sim.clear_until[node] > until and sim.eligible[kind, sim.pool_of[node]] != 0:
                found += 1
    return found >= sim.job[j].nodes


@jit
def list_by_end(sim: Arrays) -> int:
    """List nodes of running jobs by planned end in ``sim.by_end``; return how many.

    A job whose planned end has passed counts as ending soon.
    """
    size = ZERO
    soon = sim.clock.now + SECOND_MS
    for i in range(sim.clock.run_first, sim.clock.run_end):
        j = sim.run[i].job
        if j < 0:
            continue
        planned = sim.run[i].planned
        node = sim.state[j].first_node
        while node >= 0:
            sim.by_end[size].time = planned if planned > sim.clock.now else soon
            sim.by_end[size].job = node
            size += 1
            node = sim.node[node].next
    return size


@jit
def free_from(wanted: int, used: int, last: int, sim: Arrays) -> int:
    """Return when enough nodes of ``CLEAR`` are free, and pick these nodes.

    Args:
        wanted: Number of nodes.
        used: Number of entries in ``sim.by_end``.
        last: Latest time of interest, ms.
        sim: Simulation.

    Returns:
        The time, ms; -1 if it is never or after ``last``.
    """
    found = only_free(sim)
    if found >= wanted:
        return sim.clock.now
    i = ZERO
    while i < used:
        time = sim.by_end[i].time
        if time > last:
            return -1
        while i < used and sim.by_end[i].time == time:
            if has(CLEAR, sim.by_end[i].job, sim):
                put_in(PICKED, sim.by_end[i].job, sim)
                found += 1
            i += 1
        if found >= wanted:
            return time
    return -1


@jit
def list_runs(sim: Arrays) -> int:
    """List runs of numbers of picked nodes in ``sim.number_run``; return how many."""
    size = ZERO
    length = ZERO
    for node in range(len(sim.node)):
        if node & 63 == 0 and sim.sets[PICKED, node >> 6] == 0 and length == 0:
            continue
        if has(PICKED, node, sim):
            length += 1
        elif length > 0:
            sim.number_run[size, 0] = node - length
            sim.number_run[size, 1] = length
            size += 1
            length = ZERO
    if length > 0:
        sim.number_run[size, 0] = len(sim.node) - length
        sim.number_run[size, 1] = length
        size += 1
    return size


@jit
def pick_runs(wanted: int, sim: Arrays) -> None:
    """Reduce the picked nodes to the shortest sufficient run of numbers.

    If no run suffices, the longest runs are taken first.
    """
    runs = list_runs(sim)
    for w in range(sim.sets.width):
        sim.sets[PICKED, w] = 0
    while wanted > 0:
        best = ZERO
        for i in range(runs):
            length = sim.number_run[i, 1]
            so_far = sim.number_run[best, 1]
            shorter = wanted <= length < so_far
            if shorter or so_far < wanted <= length or so_far < length < wanted:
                best = i
        taken = min(wanted, sim.number_run[best, 1])
        for node in range(sim.number_run[best, 0], sim.number_run[best, 0] + taken):
            put_in(PICKED, node, sim)
        sim.number_run[best, 1] = 0
        wanted -= taken


@jit
def start_picked(j: int, sim: Arrays) -> None:
    """Start a job on the picked nodes."""
    for p in range(sim.rules.pools):
        sim.take[p] = 0
    for node in range(len(sim.node)):
        if has(PICKED, node, sim):
            sim.take[sim.pool_of[node]] += 1
    start_job(j, sim)
    for w in range(sim.sets.width):
        sim.sets[FREE, w] &= ~sim.sets[PICKED, w]


def place_picked(j: int, sim: Arrays) -> None:
    """Claim the picked nodes for a job."""
    for node in range(len(sim.node)):
        if has(PICKED, node, sim):
            claim(j, node, sim)


PLACE_PICKED = Kernel(place_picked, types.void(int64, SIM), unrolled=False)


@jit
def start_if_clear(j: int, sim: Arrays) -> bool:
    """Start a job if enough free nodes are unreserved while it would run."""
    nodes = sim.job[j].nodes
    narrow(j, sim.clock.now, sim.clock.now + sim.job[j].expected, nodes, ZERO, sim)
    if only_free(sim) < nodes:
        return False
    pick_runs(nodes, sim)
    start_picked(j, sim)
    return True


@jit
def look(full: bool, sim: Arrays) -> None:
    """Try jobs in order, down to a depth.

    Each starts if it fits in the nodes that no job before it blocks.
    """
    begin_look(full, sim)
    if not may_start(sim):
        return
    seen = False
    size = jobs_in_order(sim)
    for i in range(min(size, depth_of(full, sim))):
        j = nth(i, size, sim)
        if not takes_part(j, sim) or is_skipped(j, sim):
            continue
        if fits_unblocked(j, False, sim):
            if not seen:
                open_spans(sim)
                seen = True
            if start_if_clear(j, sim):
                continue
        if not is_young(j, sim) and not block(j, sim):
            return


@jit
def soonest(j: int, used: int, sim: Arrays) -> int:
    """Return when a job can start, and pick its nodes.

    Returns:
        The start, ms; -1 if it is never or too far ahead.
    """
    numbers = settings(sim.numbers)[0]
    now = sim.clock.now
    job = sim.job[j]
    since = now
    first = ZERO
    while True:
        while sim.node_span[first].end <= since:
            first = sim.node_span[first].next
        later = narrow(j, since, since + job.expected, job.nodes, first, sim)
        time = free_from(job.nodes, used, later, sim) if size_of(CLEAR, sim) >= job.nodes else -1
        if time >= 0:
            time = max(time, since)
            if time == now or time <= later:
                if time > now + numbers.bf_window:
                    return -1
                pick_runs(job.nodes, sim)
                if time == now:
                    return time
                begins = span_begin(time, sim)
                if not is_reserved(begins, span_end(begins, time + job.expected, sim), sim):
                    return time
                later = time if time > since else since + numbers.bf_resolution
        if later == NEVER:
            return -1
        since = later


@jit
def reserve_soonest(j: int, used: int, size: int, sim: Arrays) -> int:
    """Reserve the nodes on which a job can start soonest; return the number of spans."""
    time = soonest(j, used, sim)
    if time < 0:
        return size
    begins = span_begin(time, sim)
    ends = span_end(begins, time + sim.job[j].expected, sim)
    return reserve(PICKED, begins, ends, size, sim)


@jit
def backfill(sim: Arrays) -> None:
    """Run one backfill cycle over the jobs in order.

    Each job starts if it can, or gets a reservation for this cycle. Reservations matter only to a
    job that could start without them. They are therefore deferred (``sim.stack``) until there is
    such a job. Only as many are made as needed to keep it from starting: further ones cannot help
    it.
    """
    numbers = settings(sim.numbers)[0]
    if not may_start(sim):
        return
    open_all(sim)
    size = ZERO
    used = ZERO
    tried = ZERO
    owed = ZERO
    done = ZERO
    started = ZERO
    queued = jobs_in_order(sim)
    for i in range(queued):
        j = nth(i, queued, sim)
        if sim.state[j].phase != WAITING or is_skipped(j, sim) or not may_be_tried(j, tried, sim):
            continue
        if tried == numbers.bf_max_job_test:
            return
        sim.later[tried] = j
        tried += 1
        if fits_at_once(j, sim):
            if size == 0:
                size = open_spans(sim)
                used = list_by_end(sim)
            while done < owed and may_be_clear(j, sim):
                size = reserve_soonest(sim.stack[done], used, size, sim)
                done += 1
            if done == owed and start_if_clear(j, sim):
                used = list_by_end(sim)
                started += 1
                if started == numbers.bf_max_job_start:
                    return
                continue
        if may_reserve(j, sim):
            sim.stack[owed] = j
            owed += 1


def pass_slurm_by_node(sim: Arrays) -> None:
    """Try jobs in order if that is due, then run a backfill cycle if one is due."""
    numbers = settings(sim.numbers)[0]
    mine = own(sim.own)[0]
    reckon_fairshare(sim)
    started = sim.clock.starts
    full = is_due(numbers.sched_interval, mine.full_at, sim)
    looks = full or look_from(sim) <= sim.clock.now
    if looks:
        look(full, sim)
    cycle = is_due(numbers.bf_interval, mine.cycle_at, sim)
    if cycle:
        mine.cycle_at = sim.clock.now
        backfill(sim)
    set_timers(looks, full, cycle, sim.clock.starts > started, sim)


PASS = Pass(
    Kernel(pass_slurm_by_node, types.void(SIM), unrolled=False),
    numbers=Numbers,
    own=Own,
    begin=begin,
    keeps="no cycle had come yet, or nodes that it could have are reserved for a job before it",
    placing=PLACE_PICKED,
    reserves=lambda numbers: numbers["bf_max_job_test"],
)
