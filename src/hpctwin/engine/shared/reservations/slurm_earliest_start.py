"""When Slurm's backfill starts a job on shared nodes, and on which.

This follows its backfill plugin and its selection of parts of nodes (22.05: ``backfill.c``,
``job_test.c`` of cons_tres). A job is tried from a time on with the nodes that are in no
reservation while it would run (`capacity.node_reservations`). It gets what is left of them when
running jobs have ended. Running jobs are removed by planned end, more of them in each step.
"""

from __future__ import annotations

from hpctwin.engine.capacity.node_reservations import (
    CLEAR,
    PICKED,
    has,
    is_reserved,
    lowest,
    narrow,
    open_spans,
    put_in,
    reserve,
)
from hpctwin.engine.capacity.rounded_spans import span_begin, span_end
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.heap import heap_pop, heap_push
from hpctwin.engine.shared.allocation import free_at, put_back, take_resources
from hpctwin.engine.shared.fit import (
    goes_at,
    goes_by_kind,
    is_there,
    mark_pools,
    resources_fit,
    runs_apart,
)
from hpctwin.engine.shared.mixed_tasks import fits_beside
from hpctwin.engine.shared.node_resources import ALL, ALONE, WHOLE, copy_all, copy_row, tasks_on
from hpctwin.engine.shared.placement import choose
from hpctwin.engine.shared.reservations.node_reservations import leaves_early, promise_nodes
from hpctwin.engine.state.layout import NEVER, TAKE, ZERO, Arrays

__all__ = ["reserve_rounded"]

STRETCH_MS = 30_000
"""Jobs that end within this time of each other are removed together, at first."""
KEPT_OFF = 2**20 * ALL
"""Amount of `ALONE` that is taken from a node to exclude it.

It exceeds what all jobs that are suspended on a node could have of it together.
"""
JUST = 1
"""Reservations are recorded earlier by this, ms.

A job that ends exactly when nodes begin to be reserved is thus in the way.
"""


@jit
def could_fit(kind: int, sim: Arrays) -> bool:
    """Return whether a kind of job would fit the nodes in ``CLEAR`` if all were empty."""
    if goes_by_kind(kind, sim):
        return True
    shape = sim.shape[kind]
    total = ZERO
    nodes = ZERO
    for w in range(sim.sets.width):
        word = sim.sets[CLEAR, w]
        while word != 0:
            fits = min(tasks_on(kind, lowest(w, word), sim.whole, sim), shape.most)
            word &= word - 1
            total += fits
            nodes += min(fits, 1)
        if total >= shape.tasks and nodes >= shape.nodes:
            return True
    return False


@jit
def leave_clear(sim: Arrays) -> None:
    """Set ``sim.free_at`` to what is free now on the nodes in ``CLEAR``.

    For all other nodes it is less than zero, whatever becomes free there.
    """
    for node in range(len(sim.share)):
        copy_row(sim.left, node, sim.free_at, node)
        if not has(CLEAR, node, sim):
            sim.free_at[node, ALONE] -= KEPT_OFF


@jit
def fits_clear(j: int, start: int, sim: Arrays) -> bool:
    """Return whether a job that starts at a time fits ``sim.free_at``.

    It sets what placements read.
    """
    kind = sim.job[j].kind
    shape = sim.shape[kind]
    end = start + sim.job[j].expected
    if not resources_fit(j, start, sim):
        return False
    if goes_by_kind(kind, sim):
        return fits_beside(j, start, end, sim.free_at, sim)
    mark_pools(kind, start, end, sim)
    copy_all(sim.free_at, sim.min_free)
    total = ZERO
    nodes = ZERO
    sim.rooms.first = len(sim.share)
    for node in range(len(sim.share)):
        fits = ZERO
        if has(CLEAR, node, sim) and is_there(node, start, sim):
            fits = tasks_on(kind, node, sim.free_at, sim)
            if fits > 0 and runs_apart(kind, node, start, sim):
                fits = ZERO
        sim.fits[node] = fits
        if fits > 0:
            if nodes == 0:
                sim.rooms.first = node
            total += min(fits, shape.most)
            nodes += 1
    return total >= shape.tasks and nodes >= shape.nodes


@jit
def is_on_clear(j: int, sim: Arrays) -> bool:
    """Return whether a running job is on any of the nodes in ``CLEAR``."""
    row = sim.state[j].first_node
    while row >= 0:
        if has(CLEAR, sim.part[row].node, sim):
            return True
        row = sim.part[row].next
    return False


@jit
def running_from(r: int, sim: Arrays) -> int:
    """Return the next place, from ``r`` on, of a job that runs until its planned end."""
    while r < sim.clock.run_end and (sim.run[r].job < 0 or leaves_early(r, sim)):
        r += 1
    return r


@jit
def next_end(r: int, n: int, sim: Arrays) -> int:
    """Return when the next running job ends; NEVER if none is left.

    Args:
        r: Place of the next job that runs until its planned end.
        n: Number of overdue or preempted jobs in ``sim.times``.
        sim: Simulation.
    """
    end = NEVER
    if r < sim.clock.run_end:
        end = sim.run[r].planned
    if n > 0:
        end = min(end, sim.times[0].time)
    return end


@jit
def as_jobs_end(j: int, since: int, upto: int, sim: Arrays) -> int:
    """Return when a job fits the nodes of `leave_clear`, as running jobs end.

    Args:
        j: Job.
        since, upto: Earliest and latest time, ms.
        sim: Simulation.

    Returns:
        The time, ms; -1 if it does not fit by ``upto``.
    """
    now = sim.clock.now
    if fits_clear(j, since, sim):
        return since
    n = ZERO
    for place in range(sim.clock.run_first, sim.clock.run_end):
        who = sim.run[place].job
        if who >= 0 and (sim.run[place].planned <= now or leaves_early(place, sim)):
            n = heap_push(sim.times, n, goes_at(who, sim), who)
    r = running_from(sim.clock.run_first, sim)
    while r < sim.clock.run_end and sim.run[r].planned <= now:
        r = running_from(r + 1, sim)
    length = STRETCH_MS
    limit = NEVER
    end = next_end(r, n, sim)
    while end < NEVER:
        last = -1
        while end < NEVER:
            time = end
            if n > 0 and sim.times[0].time == time:
                who = heap_pop(sim.times, n)
                n -= 1
            else:
                who = sim.run[r].job
                r = running_from(r + 1, sim)
            end = next_end(r, n, sim)
            if not is_on_clear(who, sim):
                continue
            put_back(who, sim)
            last = time
            if limit == NEVER:
                limit = time - time % STRETCH_MS + STRETCH_MS
            if end > limit + length:
                break
        if last < 0 or last > upto:
            return -1
        length *= 2
        while end < NEVER and end > limit + length:
            length *= 2
        if fits_clear(j, max(last, since), sim):
            return max(last, since)
    return -1


@jit
def keep(j: int, begins: int, ends: int, wide: bool, sim: Arrays) -> None:
    """Reserve the nodes that were picked for a job, as whole nodes.

    Cluster-wide resources are reserved too if ``wide``.
    """
    for n in range(sim.sharing.chosen):
        sim.chosen_tasks[n] = WHOLE
        free_at(sim.chosen_nodes[n], begins - JUST, sim)
    promise_nodes(j, begins - JUST, ends, sim)
    sim.rooms.spans = reserve(PICKED, begins, ends, sim.rooms.spans, sim)
    if wide:
        take_resources(j, begins, ends, TAKE, sim)


@jit
def reserve_rounded(j: int, last: int, step: int, up: int, wide: bool, sim: Arrays) -> int:
    """Reserve the nodes on which a job can start first, as whole nodes.

    See `capacity_models.Capacity`.
    """
    kind = sim.job[j].kind
    length = sim.job[j].expected
    since = sim.clock.now
    if sim.rooms.spans == 0:
        sim.rooms.spans = open_spans(sim)
    first = ZERO
    while True:
        while sim.node_span[first].end <= since:
            first = sim.node_span[first].next
        later = narrow(j, since, since + length, sim.shape[kind].nodes, first, sim)
        time = ZERO - 1
        if could_fit(kind, sim):
            leave_clear(sim)
            time = as_jobs_end(j, since, later, sim)
        if ZERO <= time <= later:
            if time > last:
                return NEVER
            choose(j, sim)
            for w in range(sim.sets.width):
                sim.sets[PICKED, w] = 0
            for n in range(sim.sharing.chosen):
                put_in(PICKED, sim.chosen_nodes[n], sim)
            begins = span_begin(time, step, sim)
            ends = span_end(begins, time + length, step, up)
            if not is_reserved(begins, ends, sim):
                keep(j, begins, ends, wide, sim)
                return begins
            later = time if time > since else since + step
        if later == NEVER:
            return NEVER
        since = later
