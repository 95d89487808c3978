"""Starts of jobs on shared nodes, with preemption of other jobs if necessary."""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.preempting.core_loans import settle_shared
from hpctwin.engine.preempting.eviction import make_room, resume
from hpctwin.engine.shared.job_starts import start_if_it_fits
from hpctwin.engine.state.layout import Arrays

__all__ = ["start_after_preempting"]


@jit
def start_after_preempting(j: int, sim: Arrays) -> bool:
    """Start a job that fits once others left at once; return whether it started."""
    if not make_room(j, sim):
        return False
    sim.sharing.looks += 1  # jobs that did not fit before may fit now
    started = start_if_it_fits(j, sim)
    assert started
    resume(j, sim)
    if len(sim.beneath) > 0:
        settle_shared(sim)
    return True
