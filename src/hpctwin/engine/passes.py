"""The scheduling pass."""

from __future__ import annotations

from hpctwin.engine.abi import Order
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    BACKFILL_CONSERVATIVE,
    BACKFILL_EASY,
    BACKFILL_FIRST_FIT,
    BACKFILL_NONE,
    COMPRESS,
    DOWN,
    EXPECTED,
    FREE,
    HELD,
    KIND,
    LATER,
    NEVER,
    NODES,
    NOW,
    ORDER,
    PLANNED,
    QUEUE,
    QUEUED,
    RETURN,
    RUN,
    RUNS,
    STARTS,
    TAKE,
    TIMER,
    USER,
    WINDOW_END,
    ZERO,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.order import (
    drop_started,
    fairshare_factors,
    heap_order,
    order_candidates,
    order_queue,
    pop_order,
    score,
)
from hpctwin.engine.plan import (
    choose_pools,
    holds,
    load_take,
    plan_build,
    plan_change,
    plan_earliest,
    plan_fits,
    plan_split,
)
from hpctwin.engine.transitions import start_job


@jit()
def is_skipped(j: int, jobs: Jobs, machine: Machine, sim: Sim) -> bool:
    """Whether the pass goes by a job: more nodes than are up, or its user's limit is reached."""
    kind = jobs.fixed[KIND, j]
    up = 0
    for p in range(machine.speed.shape[0]):
        if machine.eligible[kind, p] != 0:
            up += machine.amount[p] - sim.amount[DOWN, p]
    if up < jobs.fixed[NODES, j]:
        return True
    if sim.user_running.shape[1] > 0:
        partition = machine.partition[kind]
        limit = machine.user_limit[partition]
        user = jobs.fixed[USER, j]
        return limit > 0 and user > 0 and sim.user_running[partition, user] >= limit
    return False


@jit()
def may_start(jobs: Jobs, machine: Machine, sim: Sim) -> bool:
    """Whether any waiting job is narrow enough for what is free now."""
    free = 0
    for p in range(machine.speed.shape[0]):
        if sim.amount[FREE, p] > 0:
            free += sim.amount[FREE, p]
    if free == 0:
        return False
    for i in range(sim.count[QUEUED]):
        if jobs.fixed[NODES, sim.number[QUEUE, i]] <= free:
            return True
    return False


@jit()
def run_pass(
    order: Order,
    candidate_order: Order,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
) -> None:
    """One scheduling pass at the present instant."""
    sim.count[TIMER] = NEVER
    if sim.count[QUEUED] == 0:
        return
    now = sim.count[NOW]
    started = sim.count[STARTS]
    conservative = rules.backfill == BACKFILL_CONSERVATIVE
    plain = not conservative and is_plain(now, jobs, machine, sim, rules)
    if plain and rules.order_changes == 0 and rules.own_candidate_order == 0:
        pass_sorted(jobs, machine, sim, rules, work)
    else:
        if not conservative and not may_start(jobs, machine, sim):
            return
        if rules.fairshare == 1:
            fairshare_factors(now, machine, sim, rules, work)
        if conservative:
            pass_conservative(order, jobs, machine, sim, rules, work)
        elif plain:
            pass_plain(order, candidate_order, jobs, machine, sim, rules, work)
        elif rules.backfill == BACKFILL_NONE:
            pass_none(order, jobs, machine, sim, rules, work)
        elif rules.backfill == BACKFILL_FIRST_FIT:
            pass_first_fit(order, jobs, machine, sim, rules, work)
        else:
            pass_easy(order, candidate_order, jobs, machine, sim, rules, work)
    if sim.count[STARTS] > started:
        drop_started(sim)


@jit()
def is_plain(now: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules) -> bool:
    """Whether counting alone decides: one pool, no resources, no maintenance ahead, none overdue."""
    if machine.speed.shape[0] > 1 or jobs.resources.shape[1] > 0:
        return False
    if rules.backfill == BACKFILL_EASY and rules.reservations != 1:
        return False
    if sim.count[RUN] > 0 and sim.running[PLANNED, 0] <= now:
        return False
    if machine.user_limit.shape[0] > 1:
        return False
    for m in range(machine.windows.shape[1]):
        if machine.windows[WINDOW_END, m] > now:
            return False
    return True


@jit()
def pass_sorted(jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work) -> None:
    """As `pass_plain`, for a queue that is kept in the order of jobs and candidates: one walk."""
    now = sim.count[NOW]
    shadow = NEVER
    spare = NEVER
    head = False
    for i in range(sim.count[QUEUED]):
        if sim.amount[FREE, 0] <= 0:
            return
        j = sim.number[QUEUE, i]
        nodes = jobs.fixed[NODES, j]
        ends = now + jobs.fixed[EXPECTED, j]
        if nodes <= sim.amount[FREE, 0]:
            if ends > shadow and nodes > spare:
                continue
            if is_skipped(j, jobs, machine, sim):
                continue
            if ends > shadow:
                spare -= nodes
            work.take[0] = nodes
            start_job(j, now, jobs, machine, sim, rules, work)
        elif not head and rules.backfill != BACKFILL_FIRST_FIT:
            if is_skipped(j, jobs, machine, sim):
                continue
            if rules.backfill == BACKFILL_NONE:
                return
            head = True
            shadow, spare = reservation_of(j, jobs, sim)


@jit()
def pass_plain(
    order: Order,
    candidate_order: Order,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
) -> None:
    """None, first-fit or EASY with one reservation, where counting alone decides.

    EASY's plan is then two numbers: when the head job starts, and how many nodes are spare then.
    """
    now = sim.count[NOW]
    n = order_queue(order, now, jobs, sim, rules, work)
    sorted_already = rules.order_changes == 0
    first = 0
    head = -1
    work.take[0] = 0
    while first < n and sim.amount[FREE, 0] > 0:
        if sorted_already:
            j = work.job[ORDER, first]
            first += 1
        else:
            j = pop_order(n, work, jobs)
            n -= 1
        if is_skipped(j, jobs, machine, sim):
            continue
        if jobs.fixed[NODES, j] > sim.amount[FREE, 0]:
            if rules.backfill == BACKFILL_FIRST_FIT:
                continue
            head = j
            break
        work.take[0] = jobs.fixed[NODES, j]
        start_job(j, now, jobs, machine, sim, rules, work)
    if head < 0 or rules.backfill != BACKFILL_EASY or sim.amount[FREE, 0] <= 0:
        return
    shadow, spare = reservation_of(head, jobs, sim)
    later = 0
    for i in range(first, n):
        j = work.job[ORDER, i]
        nodes = jobs.fixed[NODES, j]
        if nodes <= sim.amount[FREE, 0] and (
            nodes <= spare or now + jobs.fixed[EXPECTED, j] <= shadow
        ):
            work.job[LATER, later] = j
            later += 1
    order_candidates(order, candidate_order, later, now, jobs, sim, rules, work)
    for i in range(later):
        j = pop_order(later - i, work, jobs)
        nodes = jobs.fixed[NODES, j]
        if nodes > sim.amount[FREE, 0] or is_skipped(j, jobs, machine, sim):
            continue
        if now + jobs.fixed[EXPECTED, j] > shadow:
            if nodes > spare:
                continue
            spare -= nodes
        work.take[0] = nodes
        start_job(j, now, jobs, machine, sim, rules, work)
        if sim.amount[FREE, 0] <= 0:
            return


@jit()
def reservation_of(head: int, jobs: Jobs, sim: Sim) -> tuple[int, int]:
    """When enough nodes are free for the head job, by planned ends; and how many are spare then."""
    free = sim.amount[FREE, 0]
    r = 0
    shadow = sim.count[NOW]
    while free < jobs.fixed[NODES, head]:
        shadow = sim.running[PLANNED, r]
        while r < sim.count[RUN] and sim.running[PLANNED, r] == shadow:
            free += jobs.fixed[NODES, sim.running[RUNS, r]]
            r += 1
    return shadow, free - jobs.fixed[NODES, head]


@jit()
def start_now(j: int, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work) -> None:
    """Start a job that fits the plan now (``work.low``), and take it out of the plan."""
    now = sim.count[NOW]
    choose_pools(j, rules.placement, machine.eligible[jobs.fixed[KIND, j]], jobs, work)
    pools = machine.speed.shape[0]
    plan_change(j, now, now + jobs.fixed[EXPECTED, j], TAKE, pools, jobs, work)
    start_job(j, now, jobs, machine, sim, rules, work)


@jit()
def pass_none(
    order: Order, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """No backfilling: a job that does not fit blocks what it asks for."""
    now = sim.count[NOW]
    pools = machine.speed.shape[0]
    plan_build(now, jobs, machine, sim, rules, work)
    for c in range(work.blocked.shape[0]):
        work.blocked[c] = 0
    n = order_queue(order, now, jobs, sim, rules, work)
    while n > 0:
        j = pop_order(n, work, jobs)
        n -= 1
        if is_skipped(j, jobs, machine, sim):
            continue
        pools_of_job = machine.eligible[jobs.fixed[KIND, j]]
        blocked = False
        for p in range(pools):
            if pools_of_job[p] != 0 and work.blocked[p] != 0:
                blocked = True
        for c in range(jobs.resources.shape[1]):
            if jobs.resources[j, c] > 0 and work.blocked[pools + c] != 0:
                blocked = True
        if (
            not blocked
            and plan_fits(j, ZERO, jobs.fixed[EXPECTED, j], pools_of_job, jobs, work) < 0
        ):
            start_now(j, jobs, machine, sim, rules, work)
            continue
        for p in range(pools):
            if pools_of_job[p] != 0:
                work.blocked[p] = 1
        for c in range(jobs.resources.shape[1]):
            if jobs.resources[j, c] > 0:
                work.blocked[pools + c] = 1
        free_pools = 0
        for p in range(pools):
            if work.blocked[p] == 0:
                free_pools += 1
        if free_pools == 0:
            return


@jit()
def fits_at_once(j: int, jobs: Jobs, machine: Machine, sim: Sim, work: Work) -> bool:
    """Whether a job fits what is free at this moment, the plan apart."""
    for c in range(work.low.shape[0]):
        work.low[c] = sim.amount[FREE, c]
    return holds(j, machine.eligible[jobs.fixed[KIND, j]], jobs, work)


@jit()
def pass_first_fit(
    order: Order, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """Everyone that fits starts, in order."""
    now = sim.count[NOW]
    plan_build(now, jobs, machine, sim, rules, work)
    later = 0
    for i in range(sim.count[QUEUED]):
        j = sim.number[QUEUE, i]
        if fits_at_once(j, jobs, machine, sim, work):
            work.job[LATER, later] = j
            later += 1
    # What does not fit at this moment cannot start; only the rest needs an order.
    for i in range(later):
        j = work.job[LATER, i]
        work.job[ORDER, i] = j
        if rules.order_changes == 1:
            work.score[i] = score(order, j, now, jobs, sim, rules, work)
        else:
            work.score[i] = sim.key[j]
    heap_order(later, work, jobs)
    for n in range(later, 0, -1):
        j = pop_order(n, work, jobs)
        if is_skipped(j, jobs, machine, sim):
            continue
        row = machine.eligible[jobs.fixed[KIND, j]]
        if plan_fits(j, ZERO, jobs.fixed[EXPECTED, j], row, jobs, work) < 0:
            start_now(j, jobs, machine, sim, rules, work)


@jit()
def pass_easy(
    order: Order,
    candidate_order: Order,
    jobs: Jobs,
    machine: Machine,
    sim: Sim,
    rules: Rules,
    work: Work,
) -> None:
    """EASY: the first ``k`` jobs of each partition that cannot start get a reservation."""
    now = sim.count[NOW]
    pools = machine.speed.shape[0]
    plan_build(now, jobs, machine, sim, rules, work)
    # Partitions count as open while they have jobs waiting and reservations left; when the last one is
    # closed, all others are candidates and the order among them is theirs.
    open_partitions = 0
    for q in range(work.handed_out.shape[0]):
        work.handed_out[q] = -1
    for i in range(sim.count[QUEUED]):
        q = machine.partition[jobs.fixed[KIND, sim.number[QUEUE, i]]]
        if work.handed_out[q] < 0:
            work.handed_out[q] = 0
            open_partitions += 1
    if rules.reservations == 0:
        open_partitions = 0
    n = order_queue(order, now, jobs, sim, rules, work)
    later = 0
    while n > 0 and open_partitions > 0:
        j = pop_order(n, work, jobs)
        n -= 1
        q = machine.partition[jobs.fixed[KIND, j]]
        if work.handed_out[q] >= rules.reservations:
            work.job[LATER, later] = j
            later += 1
            continue
        if is_skipped(j, jobs, machine, sim):
            continue
        row = machine.eligible[jobs.fixed[KIND, j]]
        if plan_fits(j, ZERO, jobs.fixed[EXPECTED, j], row, jobs, work) < 0:
            start_now(j, jobs, machine, sim, rules, work)
            continue
        first = plan_earliest(j, jobs.fixed[EXPECTED, j], row, jobs, work)
        choose_pools(j, rules.placement, row, jobs, work)
        start = work.time[first]
        plan_change(j, start, start + jobs.fixed[EXPECTED, j], TAKE, pools, jobs, work)
        work.handed_out[q] += 1
        if work.handed_out[q] == rules.reservations:
            open_partitions -= 1
    for i in range(n):
        work.job[LATER, later] = work.job[ORDER, i]
        later += 1
    kept = 0
    for i in range(later):
        if fits_at_once(work.job[LATER, i], jobs, machine, sim, work):
            work.job[LATER, kept] = work.job[LATER, i]
            kept += 1
    order_candidates(order, candidate_order, kept, now, jobs, sim, rules, work)
    for m in range(kept, 0, -1):
        j = pop_order(m, work, jobs)
        if is_skipped(j, jobs, machine, sim):
            continue
        row = machine.eligible[jobs.fixed[KIND, j]]
        if plan_fits(j, ZERO, jobs.fixed[EXPECTED, j], row, jobs, work) < 0:
            start_now(j, jobs, machine, sim, rules, work)


@jit()
def load_reservations(jobs: Jobs, machine: Machine, sim: Sim, work: Work) -> bool:
    """Take all reservations out of the plan; False if they do not fit it."""
    pools = machine.speed.shape[0]
    for i in range(sim.count[QUEUED]):
        j = sim.number[QUEUE, i]
        if sim.time[HELD, j] < 0:
            continue
        start = sim.time[HELD, j]
        end = start + jobs.fixed[EXPECTED, j]
        first = plan_split(work, start)
        last = plan_split(work, end)
        load_take(j, pools, jobs, sim, work)
        for row in range(first, last):
            for p in range(pools):
                if work.take[p] > 0 and work.amount[row, p] < work.take[p]:
                    return False
            for c in range(jobs.resources.shape[1]):
                needed = jobs.resources[j, c]
                if needed > 0 and work.amount[row, pools + c] < needed:
                    return False
        plan_change(j, start, end, TAKE, pools, jobs, work)
    return True


@jit()
def pass_conservative(
    order: Order, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """Conservative backfilling: every job holds a reservation that never moves to a later time."""
    now = sim.count[NOW]
    pools = machine.speed.shape[0]
    plan_build(now, jobs, machine, sim, rules, work)
    sound = True
    for i in range(sim.count[QUEUED]):
        j = sim.number[QUEUE, i]
        if sim.time[HELD, j] < 0:
            continue
        if is_skipped(j, jobs, machine, sim):
            sim.time[HELD, j] = -1
            sim.count[COMPRESS] = 1
        elif sim.time[HELD, j] < now:
            sound = False
    if not (sound and load_reservations(jobs, machine, sim, work)):
        for i in range(sim.count[QUEUED]):
            sim.time[HELD, sim.number[QUEUE, i]] = -1
        plan_build(now, jobs, machine, sim, rules, work)
    compress = sim.count[COMPRESS] == 1
    sim.count[COMPRESS] = 0
    for n in range(order_queue(order, now, jobs, sim, rules, work), 0, -1):
        j = pop_order(n, work, jobs)
        span = jobs.fixed[EXPECTED, j]
        had = sim.time[HELD, j]
        skipped = is_skipped(j, jobs, machine, sim)
        if had >= 0 and (compress or skipped):
            load_take(j, pools, jobs, sim, work)
            plan_change(j, had, had + span, RETURN, pools, jobs, work)
            sim.time[HELD, j] = -1
            if skipped:
                sim.count[COMPRESS] = 1
        if skipped:
            continue
        if sim.time[HELD, j] < 0:
            row = machine.eligible[jobs.fixed[KIND, j]]
            first = plan_earliest(j, span, row, jobs, work)
            choose_pools(j, rules.placement, row, jobs, work)
            start = work.time[first]
            plan_change(j, start, start + span, TAKE, pools, jobs, work)
            sim.time[HELD, j] = start
            if pools > 1:
                for p in range(pools):
                    sim.take[j, p] = work.take[p]
        if sim.time[HELD, j] == now:
            load_take(j, pools, jobs, sim, work)
            start_job(j, now, jobs, machine, sim, rules, work)
        else:
            # No other event need come then: those it waited for may have moved to earlier times.
            sim.count[TIMER] = min(sim.count[TIMER], sim.time[HELD, j])
