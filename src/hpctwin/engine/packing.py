"""The pass that packs: of those first in order, the one that goes best with what is free starts.

Value of a job: alignment of its demand with what is free (Grandl et al., Tetris, SIGCOMM 2014), for
each second it is expected to run, less up to a half for being late in the order. The job that has waited
longest is protected once it has waited for ``patience``: nothing starts that would delay it.
"""

from __future__ import annotations

from hpctwin.engine.abi import Order
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    ELIGIBLE,
    EXPECTED,
    FREE,
    KIND,
    LATER,
    NEVER,
    NODES,
    NOW,
    OLDEST,
    QUEUE,
    QUEUED,
    STACK,
    STATE,
    TAKE,
    WAITING,
    ZERO,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.order import before, order_queue, pop_order
from hpctwin.engine.plan import choose_pools, plan_build, plan_change, plan_earliest, plan_fits
from hpctwin.engine.planned import fits_at_once, start_now
from hpctwin.engine.skipping import is_skipped


@jit()
def longest_waiting(jobs: Jobs, machine: Machine, sim: Sim, rules: Rules) -> int:
    """The waiting job that was eligible first, if its patience is over; else -1."""
    now = sim.count[NOW]
    if now - sim.count[OLDEST] < rules.patience:
        return -1
    sim.count[OLDEST] = NEVER
    found = -1
    for i in range(sim.count[QUEUED]):
        j = sim.number[QUEUE, i]
        if sim.flag[STATE, j] != WAITING:
            continue
        since = sim.time[ELIGIBLE, j]
        sim.count[OLDEST] = min(sim.count[OLDEST], since)
        if now - since < rules.patience or is_skipped(j, jobs, machine, sim):
            continue
        if found < 0 or before(float(since), j, float(sim.time[ELIGIBLE, found]), found, jobs):
            found = j
    return found


@jit()
def protect(jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work) -> int:
    """Start those whose patience is over, by eligible time; reserve for the first that does not fit.

    Returns that one, or -1.
    """
    while True:
        j = longest_waiting(jobs, machine, sim, rules)
        if j < 0:
            return -1
        row = machine.eligible[jobs.fixed[KIND, j]]
        expected = jobs.fixed[EXPECTED, j]
        if plan_fits(j, ZERO, expected, row, jobs, work) < 0:
            start_now(j, jobs, machine, sim, rules, work)
            continue
        first = plan_earliest(j, expected, row, jobs, work)
        choose_pools(j, rules.placement, row, jobs, work)
        start = work.time[first]
        plan_change(j, start, start + expected, TAKE, machine.speed.shape[0], jobs, work)
        return j


@jit()
def alignment(j: int, jobs: Jobs, machine: Machine, sim: Sim) -> float:
    """Sum over nodes and resources of share asked × share free."""
    pools = machine.speed.shape[0]
    free = 0
    nodes = 0
    for p in range(pools):
        nodes += machine.amount[p]
        free += max(ZERO, sim.amount[FREE, p])
    total = (jobs.fixed[NODES, j] / nodes) * (free / nodes)
    for c in range(jobs.resources.shape[1]):
        amount = machine.amount[pools + c]
        if amount > 0:
            total += (jobs.resources[j, c] / amount) * (sim.amount[FREE, pools + c] / amount)
    return total


@jit()
def candidates(
    order: Order, protected: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> int:
    """Put those of the first ``depth`` jobs that fit, and how many come before each, into ``work.job``."""
    now = sim.count[NOW]
    n = sim.count[QUEUED]
    if rules.order_changes == 1:
        order_queue(order, now, jobs, sim, rules, work)
    found = 0
    for i in range(min(n, rules.depth)):
        if rules.order_changes == 1:
            j = pop_order(n - i, work, jobs)
        else:
            j = sim.number[QUEUE, i]
        if sim.flag[STATE, j] != WAITING or j == protected:
            continue
        if fits_at_once(j, jobs, machine, sim, work) and not is_skipped(j, jobs, machine, sim):
            work.job[LATER, found] = j
            work.job[STACK, found] = i
            found += 1
    return found


@jit()
def pass_pack(
    order: Order, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """Protect who has waited longest, then fill what is free with what goes best."""
    plan_build(sim.count[NOW], jobs, machine, sim, rules, work)
    protected = protect(jobs, machine, sim, rules, work)
    found = candidates(order, protected, jobs, machine, sim, rules, work)
    n = sim.count[QUEUED]
    while found > 0:
        best = -1
        most = -1.0
        kept = 0
        for i in range(found):
            j = work.job[LATER, i]
            if not fits_at_once(j, jobs, machine, sim, work):
                continue
            work.job[LATER, kept] = j
            work.job[STACK, kept] = work.job[STACK, i]
            late = 1.0 - 0.5 * work.job[STACK, i] / n
            value = late * alignment(j, jobs, machine, sim) / jobs.fixed[EXPECTED, j]
            if value > most:
                most = value
                best = kept
            kept += 1
        found = kept
        if best < 0:
            return
        j = work.job[LATER, best]
        row = machine.eligible[jobs.fixed[KIND, j]]
        fits = plan_fits(j, ZERO, jobs.fixed[EXPECTED, j], row, jobs, work) < 0
        if fits and not is_skipped(j, jobs, machine, sim):
            start_now(j, jobs, machine, sim, rules, work)
        for i in range(best, found - 1):
            work.job[LATER, i] = work.job[LATER, i + 1]
            work.job[STACK, i] = work.job[STACK, i + 1]
        found -= 1
