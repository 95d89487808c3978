"""The pass that packs: of those first in order, the one that goes best with what is free starts.

Value of a job: alignment of its demand with what is free (Grandl et al., Tetris, SIGCOMM 2014), for
each second it is expected to run, less up to a half for being late in the order. The job that has waited
longest is protected once it has waited for ``patience``: nothing starts that would delay it.
"""

from __future__ import annotations

from typing import Any

from numba import int64, types

from hpctwin.engine.capacity.plan import fits_at_once, fits_plan, plan_build, reserve
from hpctwin.engine.compile.jit import Kernel, jit
from hpctwin.engine.compile.numba_types import SIM, view
from hpctwin.engine.jobs.transitions import start_now
from hpctwin.engine.passes import Pass
from hpctwin.engine.queue.eligibility import is_skipped, may_start
from hpctwin.engine.queue.order import before, order_queue, pop_order, reckon_fairshare
from hpctwin.engine.state.layout import NEVER, WAITING, ZERO, Arrays
from hpctwin.engine.state.records import Count, Int, Millis

__all__ = ["PASS", "Numbers", "Own"]


class Numbers:
    """What a policy may set."""

    depth: Count = 1000  # so many jobs, the first in order, are compared for what is free
    patience: Millis = (
        86_400_000  # a job that has waited so long since it was eligible is protected
    )


class Own:
    """What is kept."""

    oldest: Int  # no waiting job has been eligible before


settings, own = view(Numbers), view(Own)


@jit
def note_eligible(j: int, sim: Arrays) -> None:
    """A job enters the queue."""
    keeps = own(sim.own)[0]
    keeps.oldest = min(keeps.oldest, sim.state[j].eligible)


@jit
def longest_waiting(sim: Arrays) -> int:
    """The waiting job that was eligible first, if its patience is over; else -1."""
    now = sim.clock.now
    patience = settings(sim.numbers)[0].patience
    keeps = own(sim.own)[0]
    if now - keeps.oldest < patience:
        return -1
    keeps.oldest = NEVER
    found = -1
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        if sim.state[j].phase != WAITING:
            continue
        since = sim.state[j].eligible
        keeps.oldest = min(keeps.oldest, since)
        if now - since < patience or is_skipped(j, sim):
            continue
        if found < 0 or before(float(since), j, float(sim.state[found].eligible), found, sim):
            found = j
    return found


@jit
def protect(sim: Arrays) -> int:
    """Start those whose patience is over, by eligible time; reserve for the first that does not fit.

    Returns that one, or -1.
    """
    while True:
        j = longest_waiting(sim)
        if j < 0:
            return -1
        if not fits_plan(j, sim):
            reserve(j, sim)
            return j
        start_now(j, sim)


@jit
def alignment(j: int, sim: Arrays) -> float:
    """Sum over nodes and resources of share asked × share free."""
    pools = sim.rules.pools
    free = 0
    nodes = 0
    for p in range(pools):
        nodes += sim.amount[p]
        free += max(ZERO, sim.stock[p].free)
    total = (sim.job[j].nodes / nodes) * (free / nodes)
    for c in range(sim.asks.width):
        amount = sim.amount[pools + c]
        if amount > 0:
            total += (sim.asks[j, c] / amount) * (sim.stock[pools + c].free / amount)
    return total


@jit
def candidates(protected: int, sim: Arrays) -> int:
    """Put those of the first ``depth`` jobs that fit into ``later``; into ``stack`` how many come before."""
    n = sim.clock.queued
    changes = sim.rules.order_changes == 1
    if changes:
        order_queue(sim)
    found = 0
    for i in range(min(n, settings(sim.numbers)[0].depth)):
        if changes:
            j = pop_order(n - i, sim)
        else:
            j = sim.queue[i]
        if sim.state[j].phase != WAITING or j == protected:
            continue
        if fits_at_once(j, sim) and not is_skipped(j, sim):
            sim.later[found] = j
            sim.stack[found] = i
            found += 1
    return found


@jit
def pass_pack(sim: Arrays) -> None:
    """Protect who has waited longest, then fill what is free with what goes best."""
    if not may_start(sim):
        return
    reckon_fairshare(sim)
    plan_build(sim)
    protected = protect(sim)
    found = candidates(protected, sim)
    n = sim.clock.queued
    while found > 0:
        best = -1
        most = -1.0
        kept = 0
        for i in range(found):
            j = sim.later[i]
            if not fits_at_once(j, sim):
                continue
            sim.later[kept] = j
            sim.stack[kept] = sim.stack[i]
            late = 1.0 - 0.5 * sim.stack[i] / n
            value = late * alignment(j, sim) / sim.job[j].expected
            if value > most:
                most = value
                best = kept
            kept += 1
        found = kept
        if best < 0:
            return
        j = sim.later[best]
        if fits_plan(j, sim) and not is_skipped(j, sim):
            start_now(j, sim)
        for i in range(best, found - 1):
            sim.later[i] = sim.later[i + 1]
            sim.stack[i] = sim.stack[i + 1]
        found -= 1


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """The jobs that wait already count."""
    own["oldest"] = min(state["eligible"][queue], default=NEVER)


ENTERED = Kernel(note_eligible, types.void(int64, SIM))
PASS = Pass(
    Kernel(pass_pack, types.void(SIM), unrolled=False),
    numbers=Numbers,
    own=Own,
    begin=begin,
    entered=ENTERED,
    keeps="it would delay the job that has waited longest, or too many come before it",
    shared="hpctwin.engine.shared.passes.pack",
)
