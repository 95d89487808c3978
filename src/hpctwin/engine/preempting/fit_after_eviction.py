"""Test of whether a job fits on shared nodes once other jobs have left."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import planned_end
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.preempting.node_loans import is_suspended_for
from hpctwin.engine.shared.allocation import put_back
from hpctwin.engine.shared.fit import goes_at, resources_fit
from hpctwin.engine.shared.job_starts import fits_from
from hpctwin.engine.shared.node_resources import copy_all, lend_held
from hpctwin.engine.shared.placement import choose
from hpctwin.engine.state.layout import TAKE, Arrays

__all__ = ["fits_later"]


@jit
def put_kept_back(r: int, sim: Arrays) -> None:
    """Add what a job keeps while it is suspended to ``sim.free_at``."""
    put_back(r, sim)
    row = sim.state[r].first_node
    while row >= 0:
        part = sim.part[row]
        lend_held(part.kind, part.node, part.tasks, TAKE, sim.free_at, part.node, sim)
        row = part.next


@jit
def reckon_base(time: int, sim: Arrays) -> None:
    """Set ``sim.free_at`` to what running jobs leave free at a time."""
    copy_all(sim.left, sim.free_at)
    now = sim.clock.now
    for place in range(sim.clock.run_first, sim.clock.run_end):
        r = sim.run[place].job
        if r < 0 or goes_at(r, sim) > time:
            continue
        if sim.cut[r].tried == 0 or sim.cut[r].leaves > now:
            put_back(r, sim)
        elif is_suspended_for(r, sim) and planned_end(r, sim) <= time:
            put_kept_back(r, sim)


def fits_later(j: int, sim: Arrays) -> None:
    """Set ``sim.rooms.found`` to whether a job fits from ``sim.rooms.later`` on.

    If it fits, its nodes are chosen.
    """
    rooms = sim.rooms
    time = rooms.later
    rooms.found = 0
    if not resources_fit(j, time, sim):
        return
    if time == sim.clock.now:
        # Only tested jobs leave at once, and what they hold is in ``sim.left`` already.
        fits = fits_from(j, time, sim.left, sim)
    else:
        reckon_base(time, sim)
        fits = fits_from(j, time, sim.free_at, sim)
    if fits:
        choose(j, sim)
        rooms.found = 1
