"""Spans of reservations that begin and end at multiples of a step, as Slurm's do."""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import ZERO, Arrays


@jit
def span_begin(start: int, step: int, sim: Arrays) -> int:
    """Return the begin of the reservation of a job that would start at ``start``."""
    return max(sim.clock.now, start // step * step)


@jit
def span_end(begin: int, end: int, step: int, up: int) -> int:
    """Return the end of the reservation of a job that would end at ``end``."""
    more = step - 1 if up == 1 else ZERO
    return max((end + more) // step * step, begin + step)
