"""The pass of PAS: a queue whose blocked jobs are pushed down (Goyal and Pavithra, §III).

What the paper leaves open, and the choice made for each point, is in docs/pas.md.
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
    FRESH,
    KIND,
    LATER,
    LIST,
    LOOKED,
    MAIN,
    NEVER,
    NEXT,
    NODES,
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
    STATE,
    TIMER,
    TOLD,
    ZERO,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.lists import list_end, list_first, list_insert, list_remove
from hpctwin.engine.order import before, heap_order, pop_order
from hpctwin.engine.plan import plan_build, plan_fits
from hpctwin.engine.planned import start_now
from hpctwin.engine.skipping import is_skipped


@jit()
def rise(j: int, runtime: int, sim: Sim, rules: Rules) -> None:
    """Promote a job in the main queue by the distance that a dependant's runtime stands for."""
    if rules.promotion == 0:
        return
    places = runtime // rules.promotion
    at = j
    while places > 0 and sim.push[PREVIOUS, at] != list_end(MAIN, sim):
        at = sim.push[PREVIOUS, at]
        places -= 1
        sim.push[RISEN, j] += 1
    if at != j:
        list_remove(j, sim)
        list_insert(j, MAIN, at, sim)


@jit()
def hear(jobs: Jobs, sim: Sim, rules: Rules) -> None:
    """Promote what waits in the main queue for each dependant that was submitted since."""
    if jobs.waits_on.shape[0] > 0:
        for i in range(sim.count[TOLD], sim.count[ARRIVED]):
            j = jobs.by_submit[i]
            if sim.flag[STATE, j] != PENDING or sim.flag[DEAD, j] == 1:
                continue
            for e in range(jobs.waits_first[j], jobs.waits_first[j + 1]):
                on = jobs.waits_on[e]
                if sim.push[LIST, on] == MAIN:
                    rise(on, jobs.fixed[EXPECTED, j], sim, rules)
    sim.count[TOLD] = sim.count[ARRIVED]


@jit()
def take_in(jobs: Jobs, sim: Sim, rules: Rules, work: Work) -> None:
    """Put new jobs into the main queue by priority, then promote them for their dependants."""
    n = 0
    j = list_first(FRESH, sim)
    while j != list_end(FRESH, sim):
        work.job[ORDER, n] = j
        work.score[n] = sim.key[j]
        n += 1
        j = sim.push[NEXT, j]
    heap_order(n, work, jobs)
    at = list_first(MAIN, sim)
    for left in range(n, 0, -1):
        j = pop_order(left, work, jobs)
        while at != list_end(MAIN, sim) and not before(sim.key[j], j, sim.key[at], at, jobs):
            at = sim.push[NEXT, at]
        list_remove(j, sim)
        list_insert(j, MAIN, at, sim)
        work.job[LATER, n - left] = j
    for i in range(n):
        j = work.job[LATER, i]
        for e in range(jobs.edge_first[j], jobs.edge_first[j + 1]):
            other = jobs.edges[EDGE_JOB, e]
            if sim.flag[STATE, other] == PENDING and sim.flag[DEAD, other] == 0:
                rise(j, jobs.fixed[EXPECTED, other], sim, rules)


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
def has_slot(sim: Sim, rules: Rules) -> bool:
    """Whether one more job may run at once."""
    return rules.parallel == 0 or sim.count[RUN] < rules.parallel


@jit()
def push_down(j: int, sim: Sim, rules: Rules) -> None:
    """Move a blocked job some places down, or into the waiting queue after too many times."""
    at = sim.push[NEXT, j]
    sim.push[PUSHED, j] += 1
    list_remove(j, sim)
    if sim.push[PUSHED, j] > rules.attempts:
        list_insert(j, ASIDE, list_end(ASIDE, sim), sim)
        return
    places = rules.places
    while places > 0 and at != list_end(MAIN, sim):
        at = sim.push[NEXT, at]
        places -= 1
    list_insert(j, MAIN, at, sim)


@jit()
def is_empty(which: int, sim: Sim) -> bool:
    """Whether a list is empty."""
    return list_first(which, sim) == list_end(which, sim)


@jit()
def looks_aside(cycle: int, sim: Sim, rules: Rules) -> bool:
    """Whether a cycle, counted from 0, looks at the waiting queue."""
    return (cycle + 1) % rules.every == 0 or is_empty(MAIN, sim)


@jit()
def next_cycle(changed: bool, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work) -> int:
    """When a cycle may change something though no event comes; NEVER if none will.

    A cycle after one that changed nothing changes nothing, until the waiting queue's turn comes.
    """
    if is_empty(ASIDE, sim) and is_empty(MAIN, sim):
        return NEVER
    cycle = sim.count[NOW] // rules.interval + 1
    if changed:
        return cycle * rules.interval
    if has_slot(sim, rules):
        j = list_first(ASIDE, sim)
        while j != list_end(ASIDE, sim):
            if shortage(j, jobs, machine, sim, work) < 0:
                while not looks_aside(cycle, sim, rules):
                    cycle += 1
                return cycle * rules.interval
            j = sim.push[NEXT, j]
    return NEVER


@jit()
def pass_pushdown(jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work) -> None:
    """One cycle, if one is due; sets the timer for the next."""
    now = sim.count[NOW]
    if now % rules.interval != 0 or sim.count[CYCLE_AT] == now:
        sim.count[TIMER] = (now // rules.interval + 1) * rules.interval
        return
    sim.count[CYCLE_AT] = now
    hear(jobs, sim, rules)
    take_in(jobs, sim, rules, work)
    plan_build(now, jobs, machine, sim, rules, work)
    changed = False
    if looks_aside(now // rules.interval, sim, rules):
        j = list_first(ASIDE, sim)
        while j != list_end(ASIDE, sim) and has_slot(sim, rules):
            after = sim.push[NEXT, j]
            if shortage(j, jobs, machine, sim, work) < 0:
                list_remove(j, sim)
                start_now(j, jobs, machine, sim, rules, work)
                changed = True
            j = after
    while has_slot(sim, rules):
        j = list_first(MAIN, sim)
        if j == list_end(MAIN, sim) or sim.push[LOOKED, j] == now:
            break
        short = shortage(j, jobs, machine, sim, work)
        if short >= 0:
            sim.push[LOOKED, j] = now
            sim.push[BLOCKED, j] = short
            push_down(j, sim, rules)
        elif is_adjacent(j, jobs, sim, rules):
            list_remove(j, sim)
            start_now(j, jobs, machine, sim, rules, work)
        else:
            break
        changed = True
    sim.count[TIMER] = next_cycle(changed, jobs, machine, sim, rules, work)
