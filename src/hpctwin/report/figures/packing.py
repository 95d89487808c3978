"""Rows for a Gantt chart of jobs whose nodes are not known."""

from __future__ import annotations

import heapq
from bisect import bisect_left

import polars as pl

__all__ = ["pack"]


def pack(attempts: pl.DataFrame) -> pl.DataFrame:
    """Give each attempt rows that are free from its start to its end.

    The rows are made up: the lowest that lie beside each other, else several pieces. As many rows come about
    as attempts need at once.

    Args:
        attempts: ``job_id``, ``start_s``, ``end_s``, ``nodes``, without nulls.

    Returns:
        Segments: ``job_id``, ``start_s``, ``end_s``, ``first_node``, ``count``.
    """
    free = _FreeRows()
    ends: list[tuple[float, int]] = []
    taken: list[list[tuple[int, int]]] = []
    jobs: list[int] = []
    firsts: list[int] = []
    counts: list[int] = []
    ordered = attempts.sort("start_s", maintain_order=True)
    rows = ordered.select("start_s", "end_s", "nodes").iter_rows()
    for index, (start, end, nodes) in enumerate(rows):
        while ends and ends[0][0] <= start:
            for piece in taken[heapq.heappop(ends)[1]]:
                free.give_back(*piece)
        pieces = free.take(nodes)
        taken.append(pieces)
        heapq.heappush(ends, (end, index))
        for first, count in pieces:
            jobs.append(index)
            firsts.append(first)
            counts.append(count)
    return ordered[jobs].select("job_id", "start_s", "end_s").with_columns(
        first_node=pl.Series(firsts, dtype=pl.Int64), count=pl.Series(counts, dtype=pl.Int64)
    )  # fmt: skip


class _FreeRows:
    """Free rows as sorted pieces; above the highest piece all rows are free."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._counts: list[int] = []
        self._top = 0

    def take(self, nodes: int) -> list[tuple[int, int]]:
        for at, count in enumerate(self._counts):
            if count >= nodes:
                first = self._firsts[at]
                if count == nodes:
                    del self._firsts[at], self._counts[at]
                else:
                    self._firsts[at], self._counts[at] = first + nodes, count - nodes
                return [(first, nodes)]
        pieces = []
        used = 0
        while nodes and used < len(self._firsts):
            first, count = self._firsts[used], self._counts[used]
            part = min(nodes, count)
            pieces.append((first, part))
            nodes -= part
            if part < count:
                self._firsts[used], self._counts[used] = first + part, count - part
                break
            used += 1
        del self._firsts[:used], self._counts[:used]
        if nodes:
            if pieces and sum(pieces[-1]) == self._top:
                first, count = pieces.pop()
                pieces.append((first, count + nodes))
            else:
                pieces.append((self._top, nodes))
            self._top += nodes
        return pieces

    def give_back(self, first: int, count: int) -> None:
        at = bisect_left(self._firsts, first)
        if at < len(self._firsts) and first + count == self._firsts[at]:
            count += self._counts[at]
            del self._firsts[at], self._counts[at]
        if at and self._firsts[at - 1] + self._counts[at - 1] == first:
            self._counts[at - 1] += count
        else:
            self._firsts.insert(at, first)
            self._counts.insert(at, count)
