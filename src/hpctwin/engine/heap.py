"""Binary heaps of (time, job), smallest first.

A heap is the first two rows of a table, times and jobs; its size is kept in a row of ``count``.
"""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    I64,
    ZERO,
    I64x2,
)

TIME, JOB = 0, 1


@jit()
def heap_push(table: I64x2, count: I64, row: int, time: int, job: int) -> None:
    """Add an entry."""
    i = count[row]
    count[row] = i + 1
    while i > 0:
        up = (i - 1) // 2
        if table[TIME, up] < time or (table[TIME, up] == time and table[JOB, up] <= job):
            break
        table[TIME, i] = table[TIME, up]
        table[JOB, i] = table[JOB, up]
        i = up
    table[TIME, i] = time
    table[JOB, i] = job


@jit()
def _sink(table: I64x2, n: int, i: int, time: int, job: int) -> None:
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        other = child + 1
        if other < n and (
            table[TIME, other] < table[TIME, child]
            or (table[TIME, other] == table[TIME, child] and table[JOB, other] < table[JOB, child])
        ):
            child = other
        if time < table[TIME, child] or (time == table[TIME, child] and job <= table[JOB, child]):
            break
        table[TIME, i] = table[TIME, child]
        table[JOB, i] = table[JOB, child]
        i = child
    table[TIME, i] = time
    table[JOB, i] = job


@jit()
def heap_pop(table: I64x2, count: I64, row: int) -> int:
    """Take the smallest entry off and return its job."""
    top = table[JOB, 0]
    n = count[row] - 1
    count[row] = n
    if n > 0:
        _sink(table, n, ZERO, table[TIME, n], table[JOB, n])
    return top


@jit()
def heap_remove(table: I64x2, count: I64, row: int, job: int) -> None:
    """Take one job's entry off, wherever it is; rare, hence a plain search."""
    n = count[row] - 1
    i = 0
    while table[JOB, i] != job:
        i += 1
    count[row] = n
    if i == n:
        return
    time = table[TIME, n]
    last = table[JOB, n]
    while i > 0:
        up = (i - 1) // 2
        if table[TIME, up] < time or (table[TIME, up] == time and table[JOB, up] <= last):
            break
        table[TIME, i] = table[TIME, up]
        table[JOB, i] = table[JOB, up]
        i = up
    _sink(table, n, i, time, last)
