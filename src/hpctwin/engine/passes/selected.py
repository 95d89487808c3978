"""The job that was selected from outside starts next, as soon as it fits; without one, nobody starts.

An agent stands behind it (`engine.agents`): it selects a job, and the next when that one has started.
"""

from __future__ import annotations

from typing import Any

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.compile.numba_types import view
from hpctwin.engine.passes import Pass, capacity
from hpctwin.engine.state.layout import NEVER, WAITING, ZERO, Arrays
from hpctwin.engine.state.records import Int

__all__ = ["PASS", "Own", "selection"]


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
def let_pass(selected: int, longest: int, sim: Arrays) -> None:
    """Start other jobs, in order, that delay no reservation and have walltimes below ``longest``."""
    size = capacity.order_jobs(sim)
    for i in range(size):
        j = capacity.job_at(i, size, sim)
        if j == selected or sim.job[j].limit >= longest:
            continue
        if capacity.may_fit(j, sim) and not capacity.is_skipped(j, sim):
            capacity.start(j, sim)


@jit
def before_it_begins(selected: int, sim: Arrays) -> int:
    """Return how long until the selected job could begin as planned when it was selected, less cleanup.

    RLScheduler does not compute it again when jobs end before their walltimes are over.
    """
    own = selection(sim.own)[0]
    if own.awaited != selected:
        own.awaited = selected
        own.begin = capacity.earliest_start(selected, ZERO, sim)
    return own.begin - sim.clock.now - sim.rules.cleanup


def pass_selected(sim: Arrays) -> None:
    """Start the selected job if it fits; else others may pass it, where the policy says so."""
    own = selection(sim.own)[0]
    j = own.job
    if j < 0 or sim.state[j].phase != WAITING:
        return
    capacity.begin_pass(sim)
    if capacity.is_skipped(j, sim):
        return
    if capacity.may_fit(j, sim) and capacity.start(j, sim):
        own.job = own.awaited = -1
        return
    passing = settings(sim.numbers)[0].passing
    if passing == AS_IN_RLSCHEDULER:
        let_pass(j, before_it_begins(j, sim), sim)
    elif passing != 0:
        capacity.reserve(j, ZERO, sim)
        let_pass(j, NEVER, sim)


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Nobody is selected yet."""
    own["job"] = own["awaited"] = -1


PASS = Pass(
    pass_selected,
    numbers=Numbers,
    own=Own,
    begin=begin,
    reservations=lambda numbers, partitions: 1,
)
