"""Reservations that outlive a pass, for conservative backfilling."""

from __future__ import annotations

from hpctwin.engine.compile.numba_types import view
from hpctwin.engine.state.records import Int

__all__ = ["Held", "held"]


class Held:
    """Reservation of a job that outlives a pass."""

    start: Int  # begin of the reservation; -1: there is none
    first: Int  # row of its reservation on shared nodes


held = view(Held)
