"""When Slurm's backfill has a job start on shared nodes, and on which.

As its backfill plugin and its selection of parts of nodes do it (22.05: ``backfill.c``, ``job_test.c`` of
cons_tres). A job is tried from a time on with the nodes that nobody keeps while it would run. Of these it has
what is left when running jobs have ended: they are taken off by their planned ends, more at a time each time.
"""

from __future__ import annotations

from hpctwin.engine.heap import heap_pop, heap_push
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import NEVER, TAKE, ZERO, Arrays
from hpctwin.engine.passes.slurm import settings, span_begin, span_end
from hpctwin.engine.shared.amounts import ALL, ALONE, WHOLE, copy_all, copy_row, tasks_on
from hpctwin.engine.shared.kinds import fits_beside
from hpctwin.engine.shared.moving import put_back, take_resources
from hpctwin.engine.shared.placing import choose
from hpctwin.engine.shared.promises import leaves_early, promise_nodes
from hpctwin.engine.shared.room import (
    goes_at,
    goes_by_kind,
    is_there,
    is_up,
    mark_pools,
    resources_fit,
    runs_apart,
)
from hpctwin.engine.windows import window_left, windows_before

__all__ = ["keep_soonest"]

STRETCH_MS = 30_000
"""Jobs that end within so long of each other are taken off together, at first."""
KEPT_OFF = 2**20 * ALL
"""More than jobs could have of being alone, all that are suspended on a node together."""
JUST = 1
"""A promise is noted so much earlier, for who ends just when nodes begin to be kept is in the way."""


@jit
def is_kept(node: int, since: int, until: int, sim: Arrays) -> bool:
    """Whether somebody keeps a node at any time from one to another."""
    p = sim.share[node].promise
    while p >= 0 and sim.promise[p].start < until:
        if sim.promise[p].end > since:
            return True
        p = sim.promise[p].after
    return False


@jit
def leave_clear(j: int, since: int, until: int, sim: Arrays) -> bool:
    """Have ``sim.base`` say what is free now of the nodes that a job may have from a time to another.

    Of all others it says less than nothing, whatever comes to be free there. Returns whether the job would
    fit if these nodes were empty.
    """
    kind = sim.job[j].kind
    shape = sim.shape[kind]
    by_kind = goes_by_kind(kind, sim)
    total = ZERO
    nodes = ZERO
    mark_pools(kind, since, until, sim)
    for node in range(len(sim.share)):
        copy_row(sim.left, node, sim.base, node)
        there = sim.take[sim.pool_of[node]] != 0 and sim.node[node].down == 0
        if not there or is_kept(node, since, until, sim):
            sim.base[node, ALONE] -= KEPT_OFF
        elif not by_kind:
            fits = min(tasks_on(kind, node, sim.whole, sim), shape.most)
            total += fits
            nodes += min(fits, 1)
    return by_kind or (total >= shape.tasks and nodes >= shape.nodes)


@jit
def next_cut(time: int, sim: Arrays) -> int:
    """The first time after another at which any nodes begin, or end, to be kept."""
    cut = NEVER
    for row in range(sim.sharing.promises):
        own = sim.promise[row]
        if own.first == 1 and own.node >= 0:
            if own.start + JUST > time:
                cut = min(cut, own.start + JUST)
            elif own.end > time:
                cut = min(cut, own.end)
    return cut


@jit
def kept_until(node: int, since: int, sim: Arrays) -> int:
    """The first time after another at which a node that is kept until then is so no more."""
    until = -1
    p = sim.share[node].promise
    while p >= 0:
        own = sim.promise[p]
        if until >= 0 and own.start + JUST > until:
            break
        if own.end > since:
            until = max(until, own.end)
        p = own.after
    return until


@jit
def comes_back(j: int, since: int, until: int, sim: Arrays) -> int:
    """When a node that a job may have is first no more kept, or maintained; NEVER if it is too late.

    That is, later than the end of the first span of time, of those in which the same nodes are kept, that
    begins after the job would have ended.
    """
    kind = sim.job[j].kind
    last = next_cut(until, sim)
    if last < NEVER:
        last = next_cut(last, sim)
    later = NEVER
    for node in range(len(sim.share)):
        if is_up(kind, node, sim):
            time = kept_until(node, since, sim)
            if ZERO <= time <= last:
                later = min(later, time)
    for i in range(windows_before(until, sim)):
        window = sim.window[window_left(i, sim)]
        if window.pool < sim.rules.pools and sim.eligible[kind, window.pool] != 0:
            if window.end > since:
                later = min(later, window.end)
    return later


@jit
def fits_clear(j: int, start: int, sim: Arrays) -> bool:
    """Whether a job that would start at a time fits what ``sim.base`` has; leaves what placements look at."""
    kind = sim.job[j].kind
    shape = sim.shape[kind]
    end = start + sim.job[j].expected
    if not resources_fit(j, start, sim):
        return False
    if goes_by_kind(kind, sim):
        return fits_beside(j, start, end, sim.base, sim)
    mark_pools(kind, start, end, sim)
    copy_all(sim.base, sim.least)
    total = ZERO
    nodes = ZERO
    sim.rooms.first = len(sim.share)
    for node in range(len(sim.share)):
        fits = ZERO
        if is_there(node, start, sim):
            fits = tasks_on(kind, node, sim.base, sim)
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
    """Whether a running job is on any of the nodes of `leave_clear`."""
    row = sim.state[j].first_node
    while row >= 0:
        if sim.base[sim.part[row].node, ALONE] > -KEPT_OFF // 2:
            return True
        row = sim.part[row].next
    return False


@jit
def running_from(r: int, sim: Arrays) -> int:
    """The place of the next job, from one on, of those that run until their planned ends."""
    while r < sim.clock.run_end and (sim.run[r].job < 0 or leaves_early(r, sim)):
        r += 1
    return r


@jit
def next_end(r: int, n: int, sim: Arrays) -> int:
    """When the next running job ends, of those from a place on and ``n`` that are overdue, or preempted."""
    end = NEVER
    if r < sim.clock.run_end:
        end = sim.run[r].planned
    if n > 0:
        end = min(end, sim.times[0].time)
    return end


@jit
def as_jobs_end(j: int, since: int, upto: int, sim: Arrays) -> int:
    """When a job fits the nodes of `leave_clear`, from a time to another; -1 if not even once all have ended."""
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
def is_taken(begins: int, ends: int, sim: Arrays) -> bool:
    """Whether a chosen node is kept, or maintained, at any time from one to another."""
    for n in range(sim.sharing.chosen):
        if is_kept(sim.chosen[n], begins, ends - JUST, sim):
            return True
        for i in range(windows_before(ends, sim)):
            window = sim.window[window_left(i, sim)]
            if window.pool == sim.pool_of[sim.chosen[n]] and window.end > begins:
                return True
    return False


@jit
def keep_soonest(j: int, sim: Arrays) -> int:
    """Keep the nodes on which a job can start first, as wholes, unless it could only too far ahead.

    Returns:
        From when on; NEVER if none are kept.
    """
    numbers = settings(sim.numbers)[0]
    now = sim.clock.now
    length = sim.job[j].expected
    since = now
    while True:
        later = comes_back(j, since, since + length, sim)
        time = -1
        if leave_clear(j, since, since + length, sim):
            time = as_jobs_end(j, since, later, sim)
        if ZERO <= time <= later:
            if time > now + numbers.bf_window:
                return NEVER
            choose(j, sim)
            begins = span_begin(time, sim)
            ends = span_end(begins, time + length, sim)
            if not is_taken(begins, ends, sim):
                for n in range(sim.sharing.chosen):
                    sim.given[n] = WHOLE
                promise_nodes(j, begins - JUST, ends, sim)
                if numbers.bf_licenses == 1:
                    take_resources(j, begins, ends, TAKE, sim)
                return begins
            later = time if time > since else since + numbers.bf_resolution
        if later == NEVER:
            return NEVER
        since = later
