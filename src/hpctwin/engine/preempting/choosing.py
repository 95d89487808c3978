"""Who is preempted for a job that does not fit.

After Slurm (``_run_now`` of its select plugins): those that may go are taken one after the other, until the
job fits; then the last of them first, and the others by falling number of nodes; and this once more, so that
few go. Slurm counts of the others the nodes that the job would get, here it is all of theirs.
"""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import ONE, RETURN, TAKE, ZERO, Arrays
from hpctwin.engine.plan import load_take, plan_change, plan_fits, plan_split, planned_end

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
    if sim.job[one.job].submit != sim.job[other.job].submit:
        return sim.job[one.job].submit < sim.job[other.job].submit
    return sim.job[one.job].rank < sim.job[other.job].rank


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
def sink(n: int, i: int, sim: Arrays) -> None:
    """Sink entry ``i`` of the heap of ``n`` to its place."""
    while True:
        least = i
        for child in range(2 * i + 1, min(2 * i + 3, n)):
            if comes_first(child, least, sim):
                least = child
        if least == i:
            return
        swap(i, least, sim)
        i = least


@jit
def has_what_helps(r: int, j: int, sim: Arrays) -> bool:
    """Whether a running job has nodes that another could use."""
    kind = sim.job[j].kind
    load_take(r, sim)
    for p in range(sim.rules.pools):
        if sim.eligible[kind, p] != 0 and sim.take[p] > 0:
            return True
    return False


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
        since = sim.state[r].start
        if since + of.exempt > now:
            sim.clock.timer = min(sim.clock.timer, since + of.exempt)
            continue
        entry = sim.victim[n]
        entry.job = r
        entry.first = of.rank
        entry.second = sim.job[r].nodes
        if sim.rules.youngest_first == 1:
            entry.first = -since
            entry.second = 0
        n += 1
    for i in range(n // 2 - 1, -1, -1):
        sink(n, i, sim)
    return n


@jit
def grace_of(r: int, sim: Arrays) -> int:
    """For how long a job goes on after it was chosen."""
    return sim.yields[sim.claim[r].standing].grace


@jit
def plan_without(r: int, sign: int, sim: Arrays) -> None:
    """Put what a running job holds after its grace back into the plan; or (-1) take it out again."""
    leaves = sim.clock.now + grace_of(r, sim)
    planned = planned_end(r, sim)
    if leaves < planned:
        load_take(r, sim)
        plan_change(r, leaves, planned, sign, sim)


@jit
def fits_after(j: int, grace: int, sim: Arrays) -> bool:
    """Whether a job fits the plan after a time; leaves the least free amounts in ``sim.low``."""
    return plan_fits(j, plan_split(sim.clock.now + grace, sim), sim) < 0


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
def last_first(first: int, last: int, sim: Arrays) -> None:
    """Order entries anew: the last, then the others by falling number of nodes, equal ones as they were."""
    for i in range(first, last + 1):
        entry = sim.victim[i]
        entry.first = -sim.job[entry.job].nodes
        entry.second = i
    sim.victim[last].first = -(sim.rules.machine_nodes + 1)
    n = last - first + 1
    # An insertion sort: few are taken.
    for i in range(1, n):
        k = first + i
        while k > first and comes_first(k, k - 1, sim):
            swap(k, k - 1, sim)
            k -= 1


@jit
def choose(j: int, sim: Arrays) -> tuple[int, int]:
    """Choose who goes so that a job fits: entries from, and up to, a place; the latter is less if nobody.

    Those chosen are out of the plan from the end of their graces.
    """
    size = gather(j, sim)
    n = size
    grace = ZERO
    fits = False
    # Who comes off the heap goes behind it, so that the first lies last.
    while n > 0 and not fits:
        swap(ZERO, n - 1, sim)
        n -= 1
        sink(n, ZERO, sim)
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
