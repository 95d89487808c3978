"""Victims: the jobs that are preempted for a job that does not fit.

As in Slurm (``_run_now`` of its select plugins), candidates are taken one by one until the job
fits. Then the last one comes first, the others follow by decreasing number of nodes, and they are
taken again. This is done twice, so that few jobs leave. Slurm counts, except for the last one,
only nodes that the job would get. Here that is so on shared nodes; with whole nodes, all nodes of
a candidate count.
"""

from __future__ import annotations

from hpctwin.engine.capacity.plan import load_take, plan_change, plan_fits, planned_end, row_at
from hpctwin.engine.compile.intrinsics import call_with_job
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.transitions import began, has_ended
from hpctwin.engine.preempting.held_parts import (
    count_marked,
    count_nodes,
    has_parts_for,
    leave_parts,
    mark_chosen,
)
from hpctwin.engine.preempting.node_loans import has_nodes_for, leave_nodes
from hpctwin.engine.queue.order import submitted_before
from hpctwin.engine.shared.fit import goes_by_kind
from hpctwin.engine.state.layout import ONE, RETURN, TAKE, ZERO, Arrays

AGAIN = ONE + ONE  # number of times that they are taken in another order


@jit
def may_preempt(j: int, sim: Arrays) -> bool:
    """Return whether a job may preempt others, and awaits no job that is leaving."""
    return sim.yields[sim.claim[j].standing].level > 0 and sim.cut[j].waits <= sim.clock.now


@jit
def comes_first(a: int, b: int, sim: Arrays) -> bool:
    """Return whether entry ``a`` of the heap is preempted before entry ``b``."""
    one = sim.victim[a]
    other = sim.victim[b]
    if one.first != other.first:
        return one.first < other.first
    if one.second != other.second:
        return one.second < other.second
    return submitted_before(one.job, other.job, sim)


@jit
def swap(a: int, b: int, sim: Arrays) -> None:
    """Swap two entries."""
    one = sim.victim[a]
    other = sim.victim[b]
    first = one.first
    second = one.second
    job = one.job
    one.first = other.first
    one.second = other.second
    one.job = other.job
    other.first = first
    other.second = second
    other.job = job


@jit
def sink(base: int, n: int, i: int, sim: Arrays) -> None:
    """Sink entry ``i`` of the heap of ``n`` entries that begins at place ``base``."""
    while True:
        least = i
        for child in range(2 * i + 1, min(2 * i + 3, n)):
            if comes_first(base + child, base + least, sim):
                least = child
        if least == i:
            return
        swap(base + i, base + least, sim)
        i = least


@jit
def has_what_helps(r: int, j: int, sim: Arrays) -> bool:
    """Return whether a running job has nodes that another job could use."""
    kind = sim.job[j].kind
    if len(sim.share) > 0:
        return has_parts_for(r, kind, sim)
    if len(sim.beneath) > 0:
        return has_nodes_for(r, kind, sim)
    load_take(r, sim)
    for p in range(sim.rules.pools):
        if sim.eligible[kind, p] != 0 and sim.take[p] > 0:
            return True
    return False


@jit
def width_of(r: int, sim: Arrays) -> int:
    """Return how many nodes a running job has."""
    return count_nodes(r, sim) if len(sim.share) > 0 else sim.job[r].nodes


@jit
def gather(j: int, sim: Arrays) -> int:
    """Heap the jobs that may be preempted; return how many. Set a timer for the next."""
    mine = sim.claim[j].standing
    now = sim.clock.now
    n = ZERO
    for place in range(sim.clock.run_first, sim.clock.run_end):
        r = sim.run[place].job
        if r < 0:
            continue
        own = sim.claim[r].standing
        of = sim.yields[own]
        if of.mode == 0 or sim.preempts[mine, own] == 0 or sim.cut[r].leaves > 0:
            continue
        if has_ended(r, sim) or not has_what_helps(r, j, sim):
            continue
        since = began(r, sim)
        if since + of.exempt > now:
            sim.clock.timer = min(sim.clock.timer, since + of.exempt)
            continue
        entry = sim.victim[n]
        entry.job = r
        entry.first = of.rank
        entry.second = width_of(r, sim)
        if sim.rules.youngest_first == 1:
            entry.first = -since
            entry.second = 0
        n += 1
    for i in range(n // 2 - 1, -1, -1):
        sink(ZERO, n, i, sim)
    return n


@jit
def grace_of(r: int, sim: Arrays) -> int:
    """Return how long a job that is chosen keeps its nodes: its grace and the cleanup, ms."""
    return sim.yields[sim.claim[r].standing].grace


@jit
def plan_without(r: int, sign: int, sim: Arrays) -> None:
    """Return what a job holds after its grace to the plan; or (TAKE) remove it."""
    if len(sim.beneath) > 0 and len(sim.share) == 0:
        leave_nodes(r, sign, sim)
        return
    leaves = sim.clock.now + grace_of(r, sim)
    planned = planned_end(r, sim)
    if leaves >= planned:
        return
    if len(sim.share) > 0:
        leave_parts(r, leaves, planned, sign, sim)
        return
    load_take(r, sim)
    plan_change(r, leaves, planned, sign, sim)


@jit
def fits_after(j: int, grace: int, sim: Arrays) -> bool:
    """Return whether a job fits the plan once a grace has ended.

    The least free amounts are left in ``sim.low``.
    """
    if sim.hooks.fits_later != 0:
        sim.rooms.later = sim.clock.now + grace
        call_with_job(sim.hooks.fits_later, j, sim)
        return sim.rooms.found == 1
    return plan_fits(j, row_at(sim.clock.now + grace, sim), sim) < 0


@jit
def take_until_it_fits(j: int, at: int, sim: Arrays) -> int:
    """Let jobs of entries from ``at`` on leave until a job fits; return the last one."""
    grace = ZERO
    while True:
        r = sim.victim[at].job
        plan_without(r, RETURN, sim)
        grace = max(grace, grace_of(r, sim))
        if fits_after(j, grace, sim):
            return at
        at += 1


@jit
def put_back(first: int, last: int, sim: Arrays) -> None:
    """End the test of the entries from ``first`` to ``last``; they no longer leave."""
    for i in range(first, last + 1):
        plan_without(sim.victim[i].job, TAKE, sim)


@jit
def helps(r: int, sim: Arrays) -> int:
    """Return how many nodes a job that leaves gives back.

    On shared nodes, only nodes that the other job would get count.
    """
    return count_marked(r, sim) if len(sim.share) > 0 else sim.job[r].nodes


@jit
def last_first(first: int, last: int, sim: Arrays) -> None:
    """Reorder entries: the last first, then by how much they help; equal ones stay."""
    if len(sim.share) > 0:
        mark_chosen(sim)
    for i in range(first, last + 1):
        entry = sim.victim[i]
        entry.first = -helps(entry.job, sim)
        entry.second = i
    sim.victim[last].first = -(sim.rules.machine_nodes + 1)
    n = last - first + 1
    for i in range(n // 2 - 1, -1, -1):
        sink(first, n, i, sim)
    # An entry that leaves the heap is put behind it, so the first one ends up last.
    while n > 1:
        n -= 1
        swap(first, first + n, sim)
        sink(first, n, ZERO, sim)
    turn(first, last, sim)


@jit
def is_in_vain(j: int, size: int, sim: Arrays) -> bool:
    """Return whether a job would not fit even if all jobs in the heap left.

    It is False if that cannot be known. If all have the same grace, more capacity is free the more
    of them leave. That is not so for a job with tasks of several kinds: with more capacity, its
    first tasks may be placed elsewhere.
    """
    if len(sim.share) > 0 and goes_by_kind(sim.job[j].kind, sim):
        return False
    grace = grace_of(sim.victim[0].job, sim)
    for i in range(1, size):
        if grace_of(sim.victim[i].job, sim) != grace:
            return False
    for i in range(size):
        plan_without(sim.victim[i].job, RETURN, sim)
    fits = fits_after(j, grace, sim)
    put_back(ZERO, size - 1, sim)
    return not fits


@jit
def choose(j: int, sim: Arrays) -> tuple[int, int]:
    """Choose the jobs that leave so that a job fits.

    The plan no longer contains the chosen jobs from the end of their grace on.

    Returns:
        First and last place of the chosen entries; the last is smaller if no job is chosen.
    """
    size = gather(j, sim)
    if size == 0 or is_in_vain(j, size, sim):
        return ZERO, ZERO - 1
    n = size
    grace = ZERO
    fits = False
    # An entry that leaves the heap is put behind it, so the first one ends up last.
    while n > 0 and not fits:
        swap(ZERO, n - 1, sim)
        n -= 1
        sink(ZERO, n, ZERO, sim)
        r = sim.victim[n].job
        plan_without(r, RETURN, sim)
        grace = max(grace, grace_of(r, sim))
        fits = fits_after(j, grace, sim)
    if not fits:
        put_back(n, size - 1, sim)
        return ZERO, ZERO - 1
    turn(n, size - 1, sim)
    last = size - 1
    for _ in range(AGAIN):
        put_back(n, last, sim)
        last_first(n, last, sim)
        last = take_until_it_fits(j, n, sim)
    return n, last


@jit
def turn(first: int, last: int, sim: Arrays) -> None:
    """Reverse the order of the entries from ``first`` to ``last``."""
    while first < last:
        swap(first, last, sim)
        first += 1
        last -= 1
