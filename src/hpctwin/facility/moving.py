"""Moving waiting jobs when the picture has changed."""

from __future__ import annotations

from hpctwin.facility.state import FacilityState

__all__ = ["move_waiting"]


def move_waiting(state: FacilityState, gain_s: float) -> None:
    """Move every waiting job that would end much earlier at another cluster, in the order of the queues.

    Each move is made before the next job is looked at. A moved job queues as one that arrives there.

    Args:
        state: the facility.
        gain_s: a job is moved if it ends at least so much earlier, its staging included, seconds.
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
                ends = {}  # those who stay may start earlier now
