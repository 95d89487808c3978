"""Binary heaps of (time, job), smallest first. Who has a heap keeps count of its entries."""

from __future__ import annotations

from hpctwin.engine.compile.jit import jit
from hpctwin.engine.state.layout import ZERO
from hpctwin.engine.state.records import Event, Table


@jit
def heap_push(heap: Table[Event], n: int, time: int, job: int) -> int:
    """Add an entry to ``n``; how many there are now."""
    _rise(heap, n, time, job)
    return n + 1


@jit
def heap_pop(heap: Table[Event], n: int) -> int:
    """Take the smallest of ``n`` entries off and return its job."""
    top = heap[0].job
    if n > 1:
        _sink(heap, n - 1, ZERO, heap[n - 1].time, heap[n - 1].job)
    return top


@jit
def heap_remove(heap: Table[Event], n: int, job: int) -> None:
    """Take one job's entry off, wherever it is; rare, hence a plain search."""
    i = ZERO
    while heap[i].job != job:
        i += 1
    last = n - 1
    if i == last:
        return
    i = _rise(heap, i, heap[last].time, heap[last].job)
    _sink(heap, last, i, heap[last].time, heap[last].job)


@jit
def _rise(heap: Table[Event], i: int, time: int, job: int) -> int:
    """Write an entry at or above a place; where."""
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
    """1 if an entry comes before another, else 0; without a jump, which could not be foretold."""
    sooner = one.time < other.time
    return sooner | ((one.time == other.time) & (one.job < other.job))


@jit
def _sink(heap: Table[Event], n: int, i: int, time: int, job: int) -> None:
    """Write an entry at or below a place of ``n``."""
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
