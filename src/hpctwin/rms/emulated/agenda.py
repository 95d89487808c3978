"""Future actions of an emulated cluster, with their times."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

__all__ = ["CANCEL", "END", "NODE", "OTHER", "SUBMIT", "Agenda", "AgendaEntry"]

# Actions at the same time happen in this order.
END, NODE, SUBMIT, CANCEL, OTHER = range(5)


@dataclass
class AgendaEntry:
    """One action.

    Args:
        action: The action; None once it is done or dropped.
        counts: Whether a caller waits for it.
    """

    action: Callable[[], Any] | None
    counts: bool


class Agenda:
    """Actions ordered by time (rounded to milliseconds), then kind, then arrival."""

    def __init__(self) -> None:
        self.due = 0
        """How many actions that count are to come."""
        self._heap: list[tuple[float, int, int, AgendaEntry]] = []
        self._numbers = count()

    def put(
        self, kind: int, time_s: float, action: Callable[[], Any], *, counts: bool = True
    ) -> AgendaEntry:
        """Schedule an action; ``counts`` is false if no caller waits for it."""
        entry = AgendaEntry(action, counts)
        self.due += counts
        heapq.heappush(self._heap, (round(time_s, 3), kind, next(self._numbers), entry))
        return entry

    def drop(self, entry: AgendaEntry | None) -> None:
        """Cancel an action that is not done yet."""
        if entry is not None and entry.action is not None:
            entry.action = None
            self.due -= entry.counts

    def next_time(self) -> float | None:
        """Return the time of the next action."""
        heap = self._heap
        while heap and heap[0][3].action is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now_s: float) -> Callable[[], Any] | None:
        """Return the next action that is due."""
        due_s = self.next_time()
        if due_s is None or due_s > now_s:
            return None
        entry = heapq.heappop(self._heap)[3]
        action, entry.action = entry.action, None
        self.due -= entry.counts
        return action
