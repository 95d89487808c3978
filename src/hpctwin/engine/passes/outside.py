"""Nobody starts but those that are named from outside, in the order in which they are named.

`Simulation.begin` names them; a scheduler of somebody else's, or an agent, stands behind it. Those that do
not fit at that moment are passed over, and told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.capacity.plan import fits_plan, plan_build
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.compile.numba_types import view
from hpctwin.engine.jobs.transitions import start_now
from hpctwin.engine.passes import Pass, kept_of
from hpctwin.engine.queue.eligibility import is_skipped
from hpctwin.engine.queue.order import heap_order, pop_order
from hpctwin.engine.state.layout import Arrays, record_type
from hpctwin.engine.state.records import Int

if TYPE_CHECKING:
    from hpctwin.engine.state.sim import Sim

__all__ = ["PASS", "name_jobs", "pass_outside"]


class Own:
    """What is kept."""

    named: Int  # jobs named for the next pass


class Kept:
    """What is kept of each job."""

    turn: Int  # its place among those named; -1 if it is not


NAME = "outside"
own, kept = view(Own), view(Kept)


@jit
def pass_outside(sim: Arrays) -> None:
    """Those that were named start, as far as they fit."""
    if own(sim.own)[0].named == 0:
        return
    own(sim.own)[0].named = 0
    turns = kept(sim.kept)
    named = 0
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        if turns[j].turn >= 0:
            sim.order[named].job = j
            sim.order[named].score = float(turns[j].turn)
            turns[j].turn = -1
            named += 1
    heap_order(named, sim)
    plan_build(sim)
    for left in range(named, 0, -1):
        j = pop_order(left, sim)
        if not is_skipped(j, sim) and fits_plan(j, sim):
            start_now(j, sim)


def begin(own: Any, kept: Any, state: Any, queue: Any) -> None:
    """Nobody is named yet."""
    own["named"] = 0
    kept["turn"] = -1


def name_jobs(sim: Sim, rows: npt.NDArray[np.int64]) -> None:
    """Have these start in a pass at the present instant, the first thing that happens next.

    Args:
        sim: a simulation under this pass.
        rows: of jobs that wait, in the order in which they are to start.
    """
    kept_of(sim, NAME)["turn"][rows] = np.arange(len(rows))
    sim["own"].view(record_type(Own))["named"] = len(rows)
    sim.clock.pass_due = 1


PASS = Pass(pass_outside, own=Own, kept=Kept, begin=begin)
