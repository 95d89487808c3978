"""Only jobs named from outside start, in the order in which they are named.

An external scheduler or an agent names them with `Simulation.begin`. Jobs that do not fit at that
time are skipped and reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpctwin.engine.capacity.plan import fits_plan, plan_build
from hpctwin.engine.compile.intrinsics import view
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.jobs.transitions import start_now
from hpctwin.engine.passes import Pass, kept_of
from hpctwin.engine.queue.limits import is_skipped
from hpctwin.engine.queue.order import heap_order, pop_order
from hpctwin.engine.state.layout import Arrays, record_type
from hpctwin.engine.state.records import Int

if TYPE_CHECKING:
    from hpctwin.engine.state.sim import Sim

__all__ = ["PASS", "name_jobs", "pass_outside"]


class Own:
    """State that lasts from one pass to the next."""

    named: Int  # number of jobs named for the next pass


class Kept:
    """State of each job that lasts from one pass to the next."""

    turn: Int  # its place among the named jobs; -1: it is not named


NAME = "outside"
own, kept = view(Own), view(Kept)


@jit
def pass_outside(sim: Arrays) -> None:
    """Start the named jobs that fit."""
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
    """Set the initial state: no job is named."""
    own["named"] = 0
    kept["turn"] = -1


def name_jobs(sim: Sim, rows: npt.NDArray[np.int64]) -> None:
    """Name jobs to start in a pass at the present time, before any other event.

    Args:
        sim: Simulation under this pass.
        rows: Rows of pending jobs, in the order in which they are to start.
    """
    kept_of(sim, NAME)["turn"][rows] = np.arange(len(rows))
    sim["own"].view(record_type(Own))["named"] = len(rows)
    sim.clock.pass_due = 1


PASS = Pass(pass_outside, own=Own, kept=Kept, begin=begin)
