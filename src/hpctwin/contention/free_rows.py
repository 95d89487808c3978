"""Free rows of a table, given out and taken back in ranges."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from typing import Self

__all__ = ["FreeRows"]


class FreeRows:
    """Ranges of free rows of a table without end.

    Attributes:
        end: Row after the last one that was ever in use.
    """

    def __init__(self) -> None:
        self.end = 0
        self._free: list[tuple[int, int]] = []  # sorted; no range touches another

    @classmethod
    def around(cls, used: Iterable[tuple[int, int]], end: int) -> Self:
        """Return the rows before ``end`` that are not in one of these ranges."""
        made = cls()
        made.end, free = end, 0
        for first, last in sorted(used):
            made.give_back(free, max(first, free))
            free = max(last, free)
        made.give_back(free, end)
        return made

    def take(self, count: int) -> int:
        """Return the first of as many free rows in sequence."""
        for place, (first, last) in enumerate(self._free):
            if last - first >= count:
                self._free[place : place + 1] = (
                    [(first + count, last)] if last - first > count else []
                )
                return first
        self.end += count
        return self.end - count

    def give_back(self, first: int, last: int) -> None:
        """Make rows free again, up to ``last``, which is not among them."""
        if first == last:
            return
        place = bisect(self._free, (first, last))
        if place < len(self._free) and self._free[place][0] == last:
            last = self._free.pop(place)[1]
        if place > 0 and self._free[place - 1][1] == first:
            place -= 1
            first = self._free.pop(place)[0]
        self._free.insert(place, (first, last))

    def copy(self) -> FreeRows:
        """Return a copy."""
        twin = FreeRows()
        twin.end, twin._free = self.end, self._free.copy()
        return twin
