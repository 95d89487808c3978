"""Where the bars of a Gantt chart lie: rows are nodes, in the order of their numbers."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Rows", "numbers_of", "runs_of"]

Runs = tuple[tuple[int, int], ...]


def runs_of(numbers: Iterable[int]) -> Runs:
    """Node numbers as runs: first, count."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][0] + runs[-1][1]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((number, 1))
    return tuple(runs)


class Rows:
    """Guesses on which nodes jobs to come will lie: on the lowest that are free by then.

    A simulation of whole nodes counts them where their names make no difference, so which ones a job
    gets is not known; as many as it needs are free when it starts.

    Args:
        free_s: when each node that can be used becomes free, by its number.
    """

    def __init__(self, free_s: Mapping[int, float]) -> None:
        self._free = sorted(number for number, at_s in free_s.items() if at_s <= 0.0)
        self._busy = [(at_s, number) for number, at_s in free_s.items() if at_s > 0.0]
        heapq.heapify(self._busy)
        heapq.heapify(self._free)

    def place(self, start_s: float, end_s: float, nodes: int) -> Runs:
        """The rows of the next job in order of starts; fewer than its nodes if so many are not free."""
        while self._busy and self._busy[0][0] <= start_s:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        taken = [heapq.heappop(self._free) for _ in range(min(nodes, len(self._free)))]
        for number in taken:
            heapq.heappush(self._busy, (end_s, number))
        return runs_of(taken)


def numbers_of(names: Sequence[str], number: Mapping[str, int]) -> list[int]:
    """Numbers of nodes by their names; those that are not known are left out."""
    return [number[name] for name in names if name in number]
