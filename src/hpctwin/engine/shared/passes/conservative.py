"""Conservative backfilling on shared nodes: every job is promised nodes, and never later than before."""

from __future__ import annotations

from typing import Any

from numba import int64, types

from hpctwin.engine.capacity.plan import active_from, plan_build, plan_reach
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM, view
from hpctwin.engine.passes import SharedPass
from hpctwin.engine.shared.allocation import (
    start_shared,
    take_from_promises,
    take_resources,
)
from hpctwin.engine.shared.fit import begin_pass, is_skipped_shared, runs_apart
from hpctwin.engine.shared.node_reservations import (
    choose_promised,
    forget_all,
    link,
    reserve_shared,
    take_off,
)
from hpctwin.engine.shared.passes.common import jobs_in_order, nth
from hpctwin.engine.state.layout import NEVER, RETURN, TAKE, ZERO, Arrays
from hpctwin.engine.state.records import Int

__all__ = ["PASS"]


class Held:
    """What is kept of each job."""

    start: Int  # of its reservation; -1 without
    first: Int  # row of what it is promised


held_by = view(Held)


@jit
def lose_promise(j: int, sim: Arrays) -> None:
    """A job without promise that had one; others may move to an earlier time."""
    if held_by(sim.kept)[j].start >= 0:
        take_off(held_by(sim.kept)[j].first, False, sim)
        held_by(sim.kept)[j].start = -1
        sim.clock.came_back = 1


@jit
def promises_stand(sim: Arrays) -> bool:
    """Whether all promises lie ahead; jobs that are skipped give theirs up."""
    sound = True
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        start = held_by(sim.kept)[j].start
        if start >= 0:
            if is_skipped_shared(j, sim):
                lose_promise(j, sim)
            elif start < sim.clock.now:
                sound = False
    return sound


@jit
def reload_promises(sim: Arrays) -> bool:
    """Reckon anew what is left of nodes when each promise begins; False if there is too little."""
    for row in range(sim.sharing.promises):
        if sim.promise[row].node >= 0:
            sim.share[sim.promise[row].node].promise = -1
    for row in range(sim.sharing.promises):
        if sim.promise[row].node >= 0:
            own = sim.promise[row]
            node = sim.node[own.node]
            if node.down > 0:
                return False
            if node.hidden == 1 and active_from(own.node, sim) > own.start:
                return False
            if runs_apart(own.kind, own.node, own.start, sim):
                return False
            link(row, sim)
            if own.first == 1:
                take_resources(own.job, own.start, own.end, TAKE, sim)
    for row in range(sim.sharing.promises):
        if sim.promise[row].node >= 0:
            for c in range(sim.promise_left.width):
                if sim.promise_left[row, c] < 0:
                    return False
    if sim.asks.width > 0:
        plan_reach(NEVER, sim)
    for i in range(sim.plan_rows[0] if sim.asks.width > 0 else 0):
        for c in range(sim.rules.pools, sim.plan_amount.width):
            if sim.plan_amount[i, c] < 0:
                return False
    return True


@jit
def give_up(j: int, sim: Arrays) -> None:
    """A job that this pass looks at gives its promise up."""
    start = held_by(sim.kept)[j].start
    take_resources(j, start, start + sim.job[j].expected, RETURN, sim)
    take_off(held_by(sim.kept)[j].first, False, sim)
    held_by(sim.kept)[j].start = -1


@jit
def keep_or_promise(j: int, compress: bool, sim: Arrays) -> bool:
    """Promise a job nodes, if it is not skipped; whether it is promised any."""
    skipped = is_skipped_shared(j, sim)
    has = held_by(sim.kept)[j].start >= 0
    if has and (compress or skipped):
        give_up(j, sim)
        if skipped:
            sim.clock.came_back = 1
    if skipped:
        return False
    if held_by(sim.kept)[j].start < 0:
        start, first = reserve_shared(j, ZERO, sim)
        held_by(sim.kept)[j].start = start
        held_by(sim.kept)[j].first = first
    return True


def shared_conservative(sim: Arrays) -> None:
    """Each job is promised the earliest span that takes nothing from another's promise."""
    begin_pass(sim)
    if sim.asks.width > 0:
        plan_build(sim)
    if not (promises_stand(sim) and reload_promises(sim)):
        for i in range(sim.clock.queued):
            held_by(sim.kept)[sim.queue[i]].start = -1
        forget_all(sim)
        if sim.asks.width > 0:
            plan_build(sim)
    compress = sim.clock.came_back == 1
    sim.clock.came_back = 0
    for i in range(jobs_in_order(sim)):
        j = nth(i, sim)
        if not keep_or_promise(j, compress, sim):
            continue
        own = held_by(sim.kept)[j]
        if own.start == sim.clock.now:
            own.start = -1
            choose_promised(own.first, sim)
            take_off(own.first, True, sim)
            start_shared(j, sim)
            if sim.state[j].start > sim.clock.now:
                # Longer than promised, since its nodes are not on yet.
                take_from_promises(j, sim.clock.now + sim.job[j].expected, sim)
        else:
            # No other event need come then: those it waited for may have moved to earlier times.
            sim.clock.timer = min(sim.clock.timer, own.start)


def keep_promises(sim: Arrays) -> None:
    """What waiting jobs are promised is on the nodes already."""


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Nothing has been promised yet."""
    kept["start"] = -1


PASS = SharedPass(
    Kernel(shared_conservative, types.void(SIM)),
    kept=Held,
    begin=begin,
    left=Kernel(lose_promise, types.void(int64, SIM)),
    reserved=Kernel(keep_promises, types.void(SIM)),
)
