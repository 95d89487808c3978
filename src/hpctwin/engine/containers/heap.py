"""Binary heaps of (time, job), smallest first; the owner counts the entries."""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import ZERO
from hpctwin.engine.state.records import Event, Table


@jit
def heap_push(heap: Table[Event], n: int, time: int, job: int) -> int:
    """Add an entry to a heap of ``n``; return the new number of entries."""
    _rise(heap, n, time, job)
    return n + 1


@jit
def heap_pop(heap: Table[Event], n: int) -> int:
    """Remove the smallest of ``n`` entries; return its job."""
    top = heap[0].job
    if n > 1:
        _sink(heap, n - 1, ZERO, heap[n - 1].time, heap[n - 1].job)
    return top


@jit
def heap_remove(heap: Table[Event], n: int, job: int) -> None:
    """Remove one job's entry from a heap of ``n``; the job must have one.

    This is rare, so a linear search is enough.
    """
    i = ZERO
    while heap[i].job != job:
        i += 1
    last = n - 1
    if i == last:
        return
    # The last entry fills the gap, from which it may have to move up or down.
    i = _rise(heap, i, heap[last].time, heap[last].job)
    _sink(heap, last, i, heap[last].time, heap[last].job)


@jit
def _rise(heap: Table[Event], i: int, time: int, job: int) -> int:
    """Write an entry at or above a place, where it belongs; return its place."""
    while i > 0:
        up = (i - 1) // 2
        if heap[up].time < time or (heap[up].time == time and heap[up].job <= job):
            break
        heap[i].time = heap[up].time
        heap[i].job = heap[up].job
        i = up
    heap[i].time = time
    heap[i].job = job
    return i


@jit
def is_before(one: Event, other: Event) -> int:
    """Return 1 if an entry comes before another, else 0.

    Without a branch: the processor could not predict it.
    """
    sooner = one.time < other.time
    return sooner | ((one.time == other.time) & (one.job < other.job))


@jit
def _sink(heap: Table[Event], n: int, i: int, time: int, job: int) -> None:
    """Write an entry at or below a place, where it belongs in a heap of ``n``."""
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n:
            child += is_before(heap[child + 1], heap[child])
        if time < heap[child].time or (time == heap[child].time and job <= heap[child].job):
            break
        heap[i].time = heap[child].time
        heap[i].job = heap[child].job
        i = child
    heap[i].time = time
    heap[i].job = job
