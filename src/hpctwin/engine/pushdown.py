"""The pass of PAS: a queue whose blocked jobs are pushed down (Goyal and Pavithra, §III).

What the paper leaves open, and the choice made for each point, is in docs/adaptive.md.
"""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    ARRIVED,
    ASIDE,
    BLOCKED,
    CYCLE_AT,
    DEAD,
    EDGE_JOB,
    EXPECTED,
    FREE,
    FRESH,
    KIND,
    LATER,
    LIST,
    LOOKED,
    MAIN,
    NEVER,
    NEXT,
    NOW,
    ORDER,
    PENDING,
    PREVIOUS,
    PUSHED,
    QUEUE,
    QUEUED,
    RISEN,
    RUN,
    RUNS,
    SLOT,
    SLOTTED,
    STARTS,
    STATE,
    TIMER,
    TOLD,
    WAITS_FROM,
    WAITS_ON,
    WAITS_TO,
    ZERO,
    I64x2,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.lists import (
    list_empty,
    list_end,
    list_first,
    list_insert,
    list_remove,
    put_aside,
    tidy_slots,
)
from hpctwin.engine.order import before, heap_order, pop_order
from hpctwin.engine.plan import plan_build, plan_fits
from hpctwin.engine.planned import start_now
from hpctwin.engine.skipping import is_skipped


@jit()
def rise(j: int, runtime: int, promotion: int, push: I64x2) -> None:
    """Promote a job in the main queue by the distance that a dependant's runtime stands for."""
    if promotion == 0:
        return
    places = runtime // promotion
    at = j
    while places > 0 and push[PREVIOUS, at] != list_end(MAIN, push):
        at = push[PREVIOUS, at]
        places -= 1
        push[RISEN, j] += 1
    if at != j:
        list_remove(j, push)
        list_insert(j, MAIN, at, push)


@jit()
def push_down(j: int, places: int, attempts: int, push: I64x2) -> None:
    """Move a blocked job some places down, or into the waiting queue after too many times."""
    at = push[NEXT, j]
    push[PUSHED, j] += 1
    list_remove(j, push)
    if push[PUSHED, j] > attempts:
        put_aside(j, push)
        return
    while places > 0 and at != list_end(MAIN, push):
        at = push[NEXT, at]
        places -= 1
    list_insert(j, MAIN, at, push)


@jit()
def hear(jobs: Jobs, sim: Sim, rules: Rules) -> None:
    """Promote what waits in the main queue for each dependant that was submitted since."""
    if jobs.edges.shape[1] > 0:
        for i in range(sim.count[TOLD], sim.count[ARRIVED]):
            j = jobs.by_submit[i]
            if sim.flag[STATE, j] != PENDING or sim.flag[DEAD, j] == 1:
                continue
            for e in range(jobs.fixed[WAITS_FROM, j], jobs.fixed[WAITS_TO, j]):
                on = jobs.edges[WAITS_ON, e]
                if sim.push[LIST, on] == MAIN:
                    rise(on, jobs.fixed[EXPECTED, j], rules.promotion, sim.push)
    sim.count[TOLD] = sim.count[ARRIVED]


@jit()
def take_in(jobs: Jobs, sim: Sim, rules: Rules, work: Work) -> None:
    """Put new jobs into the main queue by priority, then promote them for their dependants."""
    push = sim.push
    n = 0
    j = list_first(FRESH, push)
    while j != list_end(FRESH, push):
        work.job[ORDER, n] = j
        work.score[n] = sim.key[j]
        n += 1
        j = push[NEXT, j]
    heap_order(n, work, jobs)
    at = list_first(MAIN, push)
    for left in range(n, 0, -1):
        j = pop_order(left, work, jobs)
        while at != list_end(MAIN, push) and not before(sim.key[j], j, sim.key[at], at, jobs):
            at = push[NEXT, at]
        list_remove(j, push)
        list_insert(j, MAIN, at, push)
        work.job[LATER, n - left] = j
    for i in range(n):
        j = work.job[LATER, i]
        for e in range(jobs.edge_first[j], jobs.edge_first[j + 1]):
            other = jobs.edges[EDGE_JOB, e]
            if sim.flag[STATE, other] == PENDING and sim.flag[DEAD, other] == 0:
                rise(j, jobs.fixed[EXPECTED, other], rules.promotion, push)


@jit()
def shortage(j: int, jobs: Jobs, machine: Machine, sim: Sim, work: Work) -> int:
    """What keeps a job from starting: -1 nothing, 0 nodes, else 1 + the number of the resource."""
    if is_skipped(j, jobs, machine, sim):
        return 0
    row = machine.eligible[jobs.fixed[KIND, j]]
    if plan_fits(j, ZERO, jobs.fixed[EXPECTED, j], row, jobs, work) < 0:
        return -1
    pools = machine.speed.shape[0]
    for c in range(jobs.resources.shape[1]):
        if work.low[pools + c] < jobs.resources[j, c]:
            return 1 + c
    return 0


@jit()
def next_that_fits(slot: int, jobs: Jobs, machine: Machine, sim: Sim, work: Work) -> int:
    """The slot, from one on, of the first job of the waiting queue that fits; -1 if none does."""
    pools = machine.speed.shape[0]
    for i in range(slot, sim.push[SLOT, list_end(ASIDE, sim.push)]):
        j = sim.push[SLOTTED, i]
        if j < 0:
            continue
        # Most do not fit for a plain reason, found without calling anything.
        plain = True
        for c in range(jobs.resources.shape[1]):
            if sim.amount[FREE, pools + c] < jobs.resources[j, c]:
                plain = False
        if plain and shortage(j, jobs, machine, sim, work) < 0:
            return i
    return -1


@jit()
def place_in_queue(j: int, jobs: Jobs, sim: Sim) -> int:
    """How many jobs of the queue come before a job, which may run already, by priority."""
    low = 0
    high = sim.count[QUEUED]
    while low < high:
        middle = (low + high) // 2
        other = sim.number[QUEUE, middle]
        if other != j and before(sim.key[other], other, sim.key[j], j, jobs):
            low = middle + 1
        else:
            high = middle
    return low


@jit()
def is_adjacent(j: int, jobs: Jobs, sim: Sim, rules: Rules) -> bool:
    """Whether few enough waiting jobs stand, by priority, between a job and one that runs."""
    if rules.adjacent == 0 or sim.count[RUN] == 0:
        return True
    own = place_in_queue(j, jobs, sim)
    for r in range(sim.count[RUN]):
        other = sim.running[RUNS, r]
        at = place_in_queue(other, jobs, sim)
        if at > own:
            between = at - own - 1
        else:
            between = own - at
            # Those that started in this pass are still in the queue.
            if sim.number[QUEUE, at] == other:
                between -= 1
        if between < rules.adjacent:
            return True
    return False


@jit()
def next_cycle(
    changed: bool,
    looked: bool,
    room: bool,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
) -> int:
    """When a cycle may change something though no event comes; NEVER if none will.

    A cycle after one that changed nothing changes nothing, until the waiting queue's turn comes.
    """
    if list_empty(ASIDE, sim.push) and list_empty(MAIN, sim.push):
        return NEVER
    cycle = sim.count[NOW] // rules.interval + 1
    if changed:
        return cycle * rules.interval
    if looked or not room:
        return NEVER
    if next_that_fits(ZERO, jobs, machine, sim, work) < 0:
        return NEVER
    while (cycle + 1) % rules.every != 0:
        cycle += 1
    return cycle * rules.interval


@jit()
def pass_pushdown(jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work) -> None:
    """One cycle, if one is due; sets the timer for the next."""
    now = sim.count[NOW]
    push = sim.push
    cycle = now // rules.interval
    if now % rules.interval != 0 or sim.count[CYCLE_AT] == now:
        sim.count[TIMER] = (cycle + 1) * rules.interval
        return
    sim.count[CYCLE_AT] = now
    hear(jobs, sim, rules)
    take_in(jobs, sim, rules, work)
    plan_build(now, jobs, machine, sim, rules, work)
    started = sim.count[STARTS]
    pushed = False
    limit = NEVER if rules.parallel == 0 else rules.parallel
    looks = (cycle + 1) % rules.every == 0 or list_empty(MAIN, push)
    if looks and push[SLOT, list_end(ASIDE, push)] > 2 * push[SLOTTED, list_end(ASIDE, push)]:
        tidy_slots(push)
    slot = ZERO
    while looks and sim.count[RUN] < limit:
        slot = next_that_fits(slot, jobs, machine, sim, work)
        if slot < 0:
            break
        j = push[SLOTTED, slot]
        list_remove(j, push)
        start_now(j, jobs, machine, sim, rules, work)
    while sim.count[RUN] < limit:
        j = list_first(MAIN, push)
        if j == list_end(MAIN, push) or push[LOOKED, j] == now:
            break
        short = shortage(j, jobs, machine, sim, work)
        if short >= 0:
            push[LOOKED, j] = now
            push[BLOCKED, j] = short
            push_down(j, rules.places, rules.attempts, push)
            pushed = True
            continue
        if not is_adjacent(j, jobs, sim, rules):
            break
        list_remove(j, push)
        start_now(j, jobs, machine, sim, rules, work)
    changed = pushed or sim.count[STARTS] > started
    room = sim.count[RUN] < limit
    sim.count[TIMER] = next_cycle(changed, looks, room, jobs, machine, sim, rules, work)
