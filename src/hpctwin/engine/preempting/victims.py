"""Who is preempted for a job that does not fit.

After Slurm (``_run_now`` of its select plugins): those that may go are taken one after the other, until the
job fits; then the last of them first, and the others by falling number of nodes; and this once more, so that
few go. Slurm counts of the others the nodes that the job would get, here it is all of theirs.
"""

from __future__ import annotations

from hpctwin.engine.capacity.plan import load_take, plan_change, plan_fits, planned_end, row_at
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.compile.numba_types import call_with_job
from hpctwin.engine.jobs.suspended_jobs import began
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

AGAIN = ONE + ONE  # so often they are taken in another order


@jit
def may_preempt(j: int, sim: Arrays) -> bool:
    """Whether a job may preempt any other, and waits for none that is leaving for it."""
    return sim.yields[sim.claim[j].standing].level > 0 and sim.cut[j].waits <= sim.clock.now


@jit
def comes_first(a: int, b: int, sim: Arrays) -> bool:
    """Whether one of two entries of the heap is to be preempted before the other."""
    one = sim.victim[a]
    other = sim.victim[b]
    if one.first != other.first:
        return one.first < other.first
    if one.second != other.second:
        return one.second < other.second
    return submitted_before(one.job, other.job, sim)


@jit
def swap(a: int, b: int, sim: Arrays) -> None:
    """Let two entries change their places."""
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
    """Sink entry ``i`` of the heap of ``n`` that begins at a place."""
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
    """Whether a running job has nodes that another could use."""
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
    """How many nodes a running job has."""
    return count_nodes(r, sim) if len(sim.share) > 0 else sim.job[r].nodes


@jit
def gather(j: int, sim: Arrays) -> int:
    """Heap those that may be preempted for a job; how many. A timer is set for when one more may be."""
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
        if not has_what_helps(r, j, sim):
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
    """For how long a job goes on after it was chosen."""
    return sim.yields[sim.claim[r].standing].grace


@jit
def plan_without(r: int, sign: int, sim: Arrays) -> None:
    """Put what a running job holds after its grace back into the plan; or (-1) take it out again."""
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
    """Whether a job fits the plan after a time; leaves the least free amounts in ``sim.low``."""
    if sim.hooks.fits_later != 0:
        sim.rooms.later = sim.clock.now + grace
        call_with_job(sim.hooks.fits_later, j, sim)
        return sim.rooms.found == 1
    return plan_fits(j, row_at(sim.clock.now + grace, sim), sim) < 0


@jit
def take_until_it_fits(j: int, at: int, sim: Arrays) -> int:
    """Take entries from one on out of the plan until a job fits; the last of them."""
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
    """Put those of the entries between two places back into the plan."""
    for i in range(first, last + 1):
        plan_without(sim.victim[i].job, TAKE, sim)


@jit
def helps(r: int, sim: Arrays) -> int:
    """How many nodes a job that goes gives back; where they are shared, of those that the other would get."""
    return count_marked(r, sim) if len(sim.share) > 0 else sim.job[r].nodes


@jit
def last_first(first: int, last: int, sim: Arrays) -> None:
    """Order entries anew: the last, then the others by how much they help, equal ones as they were."""
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
    # Who comes off the heap goes behind it, so that the first lies last.
    while n > 1:
        n -= 1
        swap(first, first + n, sim)
        sink(first, n, ZERO, sim)
    turn(first, last, sim)


@jit
def is_in_vain(j: int, size: int, sim: Arrays) -> bool:
    """Whether a job would not even fit if all entries of the heap went; False where that tells nothing.

    Where all go after the same time, more room is there the more of them go. (Of a job with tasks of several
    kinds that is not so: with more room, its first tasks may come to lie elsewhere.)
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
    """Choose who goes so that a job fits: entries from, and up to, a place; the latter is less if nobody.

    Those chosen are out of the plan from the end of their graces.
    """
    size = gather(j, sim)
    if size == 0 or is_in_vain(j, size, sim):
        return ZERO, ZERO - 1
    n = size
    grace = ZERO
    fits = False
    # Who comes off the heap goes behind it, so that the first lies last.
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
    """Turn the order of entries round."""
    while first < last:
        swap(first, last, sim)
        first += 1
        last -= 1
