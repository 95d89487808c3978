"""Reservations that outlive a pass: what conservative backfilling keeps of each job."""

from __future__ import annotations

from hpctwin.engine.compile.numba_types import view
from hpctwin.engine.state.records import Int

__all__ = ["Held", "held"]


class Held:
    """What is kept of each job."""

    start: Int  # of its reservation; -1 without
    first: Int  # row of what is reserved on shared nodes


held = view(Held)
