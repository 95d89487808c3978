"""Whole nodes with numbers: reservations are of particular nodes, as in Slurm.

This follows Slurm's backfill plugin and its node selection without a topology (22.05:
``backfill.c``, ``select_linear.c``). From the nodes that are not reserved while it would run, a job
gets the shortest sufficient run of numbers. The module has only the operations that the backfill
`slurm` calls.
"""

from __future__ import annotations

from hpctwin.engine.capacity.blocked_pools import block, block_nothing
from hpctwin.engine.capacity.node_reservations import (
    CLEAR,
    FREE,
    PICKED,
    has,
    is_reserved,
    narrow,
    open_spans,
    put_in,
    reserve,
    size_of,
)
from hpctwin.engine.capacity.rounded_spans import span_begin, span_end
from hpctwin.engine.capacity_models.whole_nodes import (
    any_may_start,
    is_skipped,
    keep_order,
    kept_job,
    may_fit,
    may_preempt,
)
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.transitions import start_job
from hpctwin.engine.placement.job_nodes import claim
from hpctwin.engine.state.layout import NEVER, ZERO, Arrays

__all__ = [
    "any_may_start", "begin_cycle", "begin_pass", "block", "fits", "is_skipped", "keep_order",
    "kept_job", "may_fit", "may_preempt", "reserve_rounded", "start", "start_fitting",
    "start_or_preempt",
]  # fmt: skip

SECOND_MS = 1000


@jit
def only_free(sim: Arrays) -> int:
    """Pick the free nodes that a job may have while it would run; return how many."""
    for w in range(sim.sets.width):
        sim.sets[PICKED, w] = sim.sets[FREE, w] & sim.sets[CLEAR, w]
    return size_of(PICKED, sim)


@jit
def list_by_end(sim: Arrays) -> int:
    """List the nodes of running jobs by planned end in ``sim.by_end``.

    A job past its planned end is expected to end soon.

    Returns:
        Number of nodes listed.
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
    """Pick the clear nodes that are free at the first time at which they suffice.

    Returns:
        That time; -1 if there is none up to ``last``.
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
    """List the runs of numbers among the picked nodes; return how many."""
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

    If no run suffices, the longest runs come first.
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
    """Allocate the picked nodes to a job."""
    for node in range(len(sim.node)):
        if has(PICKED, node, sim):
            claim(j, node, sim)


@jit
def begin_cycle(sim: Arrays) -> None:
    """Drop all reservations, and block nothing."""
    block_nothing(sim)
    sim.plan_rows[0] = 0
    sim.rooms.spans = 0
    sim.rooms.ends = ZERO - 1


begin_pass = begin_cycle


@jit
def need_spans(sim: Arrays) -> None:
    """Build the spans of time in which nodes are reserved, unless they exist."""
    if sim.rooms.spans == 0:
        sim.rooms.spans = open_spans(sim)


@jit
def fits(j: int, sim: Arrays) -> bool:
    """Return whether enough nodes are free now and not reserved while a job would run.

    All of these nodes are picked.
    """
    if not may_fit(j, sim):
        return False
    need_spans(sim)
    nodes = sim.job[j].nodes
    narrow(j, sim.clock.now, sim.clock.now + sim.job[j].expected, nodes, ZERO, sim)
    return only_free(sim) >= nodes


@jit
def start_fitting(j: int, sim: Arrays) -> None:
    """Start a job on picked nodes, in as few runs of numbers as suffice."""
    pick_runs(sim.job[j].nodes, sim)
    start_picked(j, sim)
    sim.rooms.ends = ZERO - 1


@jit
def start(j: int, sim: Arrays) -> bool:
    """Start a job if it fits; return whether it did."""
    if not fits(j, sim):
        return False
    start_fitting(j, sim)
    return True


start_or_preempt = start


@jit
def earliest(j: int, last: int, step: int, up: int, sim: Arrays) -> int:
    """Return when a job can start, and pick its nodes; -1 if that is after ``last``."""
    now = sim.clock.now
    job = sim.job[j]
    used = sim.rooms.ends
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
                if time > last:
                    return -1
                pick_runs(job.nodes, sim)
                if time == now:
                    return time
                begins = span_begin(time, step, sim)
                if not is_reserved(begins, span_end(begins, time + job.expected, step, up), sim):
                    return time
                later = time if time > since else since + step
        if later == NEVER:
            return -1
        since = later


@jit
def reserve_rounded(j: int, last: int, step: int, up: int, wide: bool, sim: Arrays) -> int:
    """Reserve the earliest nodes for a job, without cluster-wide resources."""
    need_spans(sim)
    if sim.rooms.ends < 0:
        sim.rooms.ends = list_by_end(sim)
    time = earliest(j, last, step, up, sim)
    if time < 0:
        return NEVER
    begins = span_begin(time, step, sim)
    ends = span_end(begins, time + sim.job[j].expected, step, up)
    sim.rooms.spans = reserve(PICKED, begins, ends, sim.rooms.spans, sim)
    return begins
