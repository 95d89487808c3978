"""Ends of running jobs that the caller decides while a simulation runs."""

from __future__ import annotations

from hpctwin.engine.compile.intrinsics import sim_at
from hpctwin.engine.compile.jit import Kernel
from hpctwin.engine.containers.heap import heap_push
from hpctwin.engine.jobs.transitions import forget_end, next_end
from hpctwin.engine.state.layout import COMPLETED, FAILED, SENT_BACK

__all__ = ["PUT_END"]


def _put_end(address: int, j: int, end: int) -> None:
    sim = sim_at(address)
    state = sim.state[j]
    if end > state.end or (end == state.end and state.outcome == SENT_BACK):
        return
    forget_end(j, sim)
    state.outcome = COMPLETED if sim.job[j].fails == 0 else FAILED
    state.end = end
    sim.clock.ends = heap_push(sim.ends, sim.clock.ends, next_end(j, sim), j)


PUT_END = Kernel(_put_end, "void(int64, int64, int64)")
"""End a running job at a time that is not in the past, ms: ``(address, job, end)``.

A job that its walltime or a preemption ends earlier stays as it is.
"""
