"""Moves of pending jobs to a cluster where they now end earlier."""

from __future__ import annotations

from hpctwin.facility.state import FacilityState

__all__ = ["move_waiting"]


def move_waiting(state: FacilityState, gain_s: float) -> None:
    """Move each pending job that would end much earlier on another cluster.

    Jobs are checked in the order of the queues, and each move is made before the next check. A
    moved job queues on the new cluster like a new arrival.

    Args:
        state: The facility.
        gain_s: Minimum time by which the job must end earlier, including its staging, in seconds.
    """
    state.advance_all()
    gain_ms = round(1000 * gain_s)
    for here, cluster in enumerate(state.clusters):
        rows = cluster.waiting()
        ends: dict[int, int] = {}
        for row in rows.tolist():
            options = [c for c in state.options(row) if c != here]
            if not options:
                continue
            if not ends:
                found = cluster.forecast(state.now_ms, rows[:0], rows)[1]
                ends = dict(zip(rows.tolist(), found.tolist(), strict=True))
            if ends[row] < 0:
                continue
            best, where = ends[row] - gain_ms, here
            for other in options:
                _, end = state.forecast_end(row, other, best)
                if end >= 0 and (where == here or end < best):
                    best, where = end, other
            if where != here:
                state.move(row, where, best)
                rows = rows[rows != row]
                ends = {}  # the remaining jobs may start earlier now
