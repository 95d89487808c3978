"""What an emulated cluster will do, and when."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

__all__ = ["CANCEL", "END", "NODE", "OTHER", "SUBMIT", "Agenda", "AgendaEntry"]

# What happens at one instant happens in this order.
END, NODE, SUBMIT, CANCEL, OTHER = range(5)


@dataclass
class AgendaEntry:
    """One thing to do.

    Args:
        action: it; None once nothing is to be done any more.
        counts: whether somebody waits for it.
    """

    action: Callable[[], Any] | None
    counts: bool


class Agenda:
    """Actions in order of time, then kind, then as they came. Times are rounded to milliseconds."""

    def __init__(self) -> None:
        self.due = 0
        """How many actions that count are to come."""
        self._heap: list[tuple[float, int, int, AgendaEntry]] = []
        self._numbers = count()

    def put(
        self, kind: int, time_s: float, action: Callable[[], Any], *, counts: bool = True
    ) -> AgendaEntry:
        """Have something done at a time; ``counts`` is false for what nobody waits for."""
        entry = AgendaEntry(action, counts)
        self.due += counts
        heapq.heappush(self._heap, (round(time_s, 3), kind, next(self._numbers), entry))
        return entry

    def drop(self, entry: AgendaEntry | None) -> None:
        """Do not do it, if it is not done yet."""
        if entry is not None and entry.action is not None:
            entry.action = None
            self.due -= entry.counts

    def next_time(self) -> float | None:
        """When the next thing is to be done."""
        heap = self._heap
        while heap and heap[0][3].action is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now_s: float) -> Callable[[], Any] | None:
        """The next thing that is due."""
        due_s = self.next_time()
        if due_s is None or due_s > now_s:
            return None
        entry = heapq.heappop(self._heap)[3]
        action, entry.action = entry.action, None
        self.due -= entry.counts
        return action
