"""The job that an agent selects starts next, once it fits; else no job starts.

See `engine.agents`. The agent selects the next job when this one has started.
"""

from __future__ import annotations

from typing import Any

from hpctwin.engine.compile.intrinsics import view
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.state.layout import NEVER, WAITING, ZERO, Arrays
from hpctwin.engine.state.records import Int

__all__ = ["PASS", "Own", "selection"]


class Numbers:
    """Settings of the backfill."""

    passing: Int = 0  # whether jobs may pass the selected one: 1 as with EASY, 2 as in RLScheduler


class Own:
    """State that lasts from one pass to the next."""

    job: Int  # the selected job; -1: none
    awaited: Int  # the same job, once it was found not to fit
    begin: Int  # time at which it could begin, as planned then


settings, selection = view(Numbers), view(Own)
AS_IN_RLSCHEDULER = 2


@jit
def let_pass(selected: int, longest: int, sim: Arrays) -> None:
    """Start others with walltimes below ``longest``, in order; delay no reservation."""
    size = capacity.order_jobs(sim)
    for i in range(size):
        j = capacity.job_at(i, size, sim)
        if j == selected or sim.job[j].limit >= longest:
            continue
        if capacity.may_fit(j, sim) and not capacity.is_skipped(j, sim):
            capacity.start(j, sim)


@jit
def before_it_begins(selected: int, sim: Arrays) -> int:
    """Return the time until the selected job could begin, less cleanup.

    The begin is as planned when the job was found not to fit. RLScheduler does not compute it again
    when jobs end before their walltimes.
    """
    own = selection(sim.own)[0]
    if own.awaited != selected:
        own.awaited = selected
        own.begin = capacity.earliest_start(selected, ZERO, sim)
    return own.begin - sim.clock.now - sim.rules.cleanup


def pass_selected(sim: Arrays) -> None:
    """Start the selected job if it fits; otherwise others may pass it, if so set."""
    own = selection(sim.own)[0]
    j = own.job
    if j < 0 or sim.state[j].phase != WAITING:
        return
    capacity.begin_pass(sim)
    if capacity.is_skipped(j, sim):
        return
    tries = capacity.may_fit(j, sim) or capacity.may_preempt(j, sim)
    if tries and capacity.start_or_preempt(j, sim):
        own.job = own.awaited = -1
        return
    passing = settings(sim.numbers)[0].passing
    if passing == AS_IN_RLSCHEDULER:
        let_pass(j, before_it_begins(j, sim), sim)
    elif passing != 0:
        capacity.reserve(j, ZERO, sim)
        let_pass(j, NEVER, sim)


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Set the initial state: no job is selected."""
    own["job"] = own["awaited"] = -1


PASS = Pass(
    pass_selected,
    numbers=Numbers,
    own=Own,
    begin=begin,
    reservations=lambda numbers, partitions: 1,
)
