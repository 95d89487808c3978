"""The scheduling pass."""

from __future__ import annotations

from hpctwin.engine.abi import Order
from hpctwin.engine.conservative import pass_conservative
from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    BACKFILL_CONSERVATIVE,
    BACKFILL_FIRST_FIT,
    BACKFILL_NONE,
    BACKFILL_PUSHDOWN,
    NEVER,
    NOW,
    QUEUED,
    STARTS,
    TIMER,
    Jobs,
    Machine,
    Rules,
    Sim,
    Work,
)
from hpctwin.engine.order import drop_started, fairshare_factors
from hpctwin.engine.packing import pass_pack
from hpctwin.engine.plain import is_plain, pass_plain, pass_sorted
from hpctwin.engine.planned import pass_easy, pass_first_fit, pass_none
from hpctwin.engine.pushdown import pass_pushdown
from hpctwin.engine.skipping import may_start


@jit(inline=True)
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
def run_packed_pass(
    order: Order, jobs: Jobs, machine: Machine, sim: Sim, rules: Rules, work: Work
) -> None:
    """One pass of ``pack`` or ``pushdown``."""
    sim.count[TIMER] = NEVER
    if sim.count[QUEUED] == 0:
        return
    started = sim.count[STARTS]
    if rules.backfill == BACKFILL_PUSHDOWN:
        pass_pushdown(jobs, machine, sim, rules, work)
    elif may_start(jobs, machine, sim):
        if rules.fairshare == 1:
            fairshare_factors(sim.count[NOW], machine, sim, rules, work)
        pass_pack(order, jobs, machine, sim, rules, work)
    if sim.count[STARTS] > started:
        drop_started(sim)
