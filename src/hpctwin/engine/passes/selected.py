"""The job that was selected from outside starts next, as soon as it fits; without one, nobody starts.

An agent stands behind it (`engine.agents`): it selects a job, and the next when that one has started.
"""

from __future__ import annotations

from typing import Any

from numba import types

from hpctwin.engine.capacity.plan import fits_at_once, fits_plan, plan_build, plan_earliest, reserve
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM, view
from hpctwin.engine.fast_passes.counted_passes import amounts_decide, lacks
from hpctwin.engine.jobs.transitions import start_job, start_now
from hpctwin.engine.passes import Pass
from hpctwin.engine.queue.eligibility import is_skipped
from hpctwin.engine.queue.order import order_queue, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import WAITING, Arrays
from hpctwin.engine.state.records import Int

__all__ = ["PASS", "Own", "pass_selected", "selection"]


class Numbers:
    """What a policy may set."""

    passing: Int = 0  # others may pass it while it waits: 1 as with EASY, 2 as in RLScheduler


class Own:
    """What is kept."""

    job: Int  # the one that was selected; -1
    awaited: Int  # the same, once it was found not to fit
    begin: Int  # when it could begin by what was planned then


settings, selection = view(Numbers), view(Own)
AS_IN_RLSCHEDULER = 2


@jit
def let_pass(selected: int, sim: Arrays) -> None:
    """The others, in order, start if they fit what the reservation of the selected job leaves."""
    reckon_fairshare(sim)
    for left in range(order_queue(sim), 0, -1):
        j = pop_order(left, sim)
        if j != selected and fits_at_once(j, sim) and not is_skipped(j, sim) and fits_plan(j, sim):
            start_now(j, sim)


@jit
def let_pass_before(selected: int, sim: Arrays) -> None:
    """The others, in order, start if they fit now, and end before the selected job can begin.

    When that is, is what was planned when it was selected: RLScheduler does not reckon it anew when jobs end
    before their walltimes are over.
    """
    own = selection(sim.own)[0]
    if own.awaited != selected:
        own.awaited = selected
        own.begin = sim.plan_time[plan_earliest(selected, sim)]
    reckon_fairshare(sim)
    longest = own.begin - sim.clock.now - sim.rules.cleanup
    for left in range(order_queue(sim), 0, -1):
        j = pop_order(left, sim)
        if j == selected or sim.job[j].limit >= longest or is_skipped(j, sim):
            continue
        if fits_at_once(j, sim) and fits_plan(j, sim):
            start_now(j, sim)


@jit
def pass_selected(sim: Arrays) -> None:
    """The selected job starts if it fits; else others pass it, where they may."""
    own = selection(sim.own)[0]
    j = own.job
    if j < 0 or sim.state[j].phase != WAITING or is_skipped(j, sim):
        return
    passing = settings(sim.numbers)[0].passing
    nodes = sim.job[j].nodes
    if sim.clock.unpowered == 0 and amounts_decide(sim):
        if nodes <= sim.stock[0].free and not lacks(j, sim):
            sim.take[0] = nodes
            start_job(j, sim)
            own.job = own.awaited = -1
            return
        if passing == 0:
            return
    plan_build(sim)
    if fits_plan(j, sim):
        start_now(j, sim)
        own.job = own.awaited = -1
    elif passing == AS_IN_RLSCHEDULER:
        let_pass_before(j, sim)
    elif passing != 0:
        reserve(j, sim)
        let_pass(j, sim)


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Nobody is selected yet."""
    own["job"] = own["awaited"] = -1


PASS = Pass(
    Kernel(pass_selected, types.void(SIM)),
    numbers=Numbers,
    own=Own,
    begin=begin,
    shared="hpctwin.engine.shared.passes.selected",
)
