"""The lists of the backfill pushdown: each pending job is in one of three.

The lists are rings through the rows that pushdown keeps. The end of list ``k`` is the row ``k``
after the rows of the jobs. The waiting queue may be long and is searched from front to back. Its
jobs are therefore also kept in slots, so that a search does not follow a ring through memory. The
row at its end counts slots and jobs.
"""

from __future__ import annotations

import numpy as np

from hpctwin.engine.compile.intrinsics import view
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.order import heap_order, pop_order
from hpctwin.engine.queue.preemptor_order import list_preemptors, may_preempt
from hpctwin.engine.state.layout import ZERO, Arrays
from hpctwin.engine.state.records import Int, Table

FRESH, MAIN, ASIDE = np.arange(3)
LISTS = 3


class Push:
    """What pushdown keeps of each job; -1 for nothing."""

    next: Int
    previous: Int
    list: Int
    pushed: Int  # number of times it was pushed down
    blocked: Int  # resource that was short then
    risen: Int  # places it has moved up
    looked: Int  # when it was last considered
    slot: Int  # slot of a job of the waiting queue
    slotted: Int  # job in the slot with this number


kept = view(Push)


@jit
def keeps_lists(sim: Arrays) -> bool:
    """Return whether the pass keeps pending jobs in lists, as pushdown does."""
    return len(sim.kept) > len(sim.state)


@jit
def list_end(which: int, push: Table[Push]) -> int:
    """Return the row that represents the end of a list."""
    return len(push) - LISTS + which


@jit
def list_first(which: int, push: Table[Push]) -> int:
    """Return the first job of a list; its end if it is empty."""
    return push[list_end(which, push)].next


@jit
def list_empty(which: int, push: Table[Push]) -> bool:
    """Return whether a list is empty."""
    return list_first(which, push) == list_end(which, push)


@jit
def list_insert(j: int, which: int, at: int, push: Table[Push]) -> None:
    """Insert a job that is in no list, before another job of a list or before its end."""
    before = push[at].previous
    push[before].next = j
    push[j].previous = before
    push[j].next = at
    push[at].previous = j
    push[j].list = which


@jit
def tidy_slots(push: Table[Push]) -> None:
    """Close the gaps in the slots of jobs that have left the waiting queue."""
    end = push[list_end(ASIDE, push)]
    kept = 0
    for i in range(end.slot):
        j = push[i].slotted
        if j >= 0:
            push[kept].slotted = j
            push[j].slot = kept
            kept += 1
    end.slot = kept


@jit
def has_gaps(push: Table[Push]) -> bool:
    """Return whether more slots are empty than used."""
    end = push[list_end(ASIDE, push)]
    return end.slot > 2 * end.slotted


@jit
def put_aside(j: int, push: Table[Push]) -> None:
    """Append a job that is in no list to the waiting queue."""
    end = list_end(ASIDE, push)
    list_insert(j, ASIDE, end, push)
    if has_gaps(push) or push[end].slot == len(push) - LISTS:
        tidy_slots(push)
    n = push[end].slot
    push[n].slotted = j
    push[j].slot = n
    push[end].slot = n + 1
    push[end].slotted += 1


@jit
def list_remove(j: int, push: Table[Push]) -> None:
    """Remove a job from its list."""
    if push[j].list == ASIDE:
        push[push[j].slot].slotted = -1
        push[list_end(ASIDE, push)].slotted -= 1
    before = push[j].previous
    after = push[j].next
    push[before].next = after
    push[after].previous = before
    push[j].list = -1


@jit
def copy_lists(push: Table[Push], to: Table[Push]) -> None:
    """Copy all lists to a table that may have rows for more jobs."""
    jobs = len(push) - LISTS
    more = len(to) - len(push)
    for row in range(len(push)):
        own = push[row]
        other = to[row + more if row >= jobs else row]
        other.next = own.next + more if own.next >= jobs else own.next
        other.previous = own.previous + more if own.previous >= jobs else own.previous
        other.list = own.list
        other.pushed = own.pushed
        other.blocked = own.blocked
        other.risen = own.risen
        other.looked = own.looked
        other.slot = own.slot
        other.slotted = own.slotted


@jit
def list_begin(j: int, which: int, push: Table[Push]) -> None:
    """Append a job that begins to wait to a list, with all its counters reset."""
    push[j].pushed = 0
    push[j].risen = 0
    push[j].blocked = -1
    push[j].looked = -1
    list_insert(j, which, list_end(which, push), push)


@jit
def order_fresh(n: int, sim: Arrays) -> int:
    """Put the new jobs into ``sim.later`` from place ``n`` on, in order; return the next place."""
    push = kept(sim.kept)
    size = ZERO
    j = list_first(FRESH, push)
    while j != list_end(FRESH, push):
        sim.order[size].job = j
        sim.order[size].score = sim.state[j].key
        size += 1
        j = push[j].next
    heap_order(size, sim)
    for left in range(size, 0, -1):
        sim.later[n] = pop_order(left, sim)
        n += 1
    return n


@jit
def list_in_turn(sim: Arrays) -> int:
    """Put the pending jobs into ``sim.later`` as they take turns; return how many there are.

    Jobs that may preempt others come first, then the waiting queue, the main queue and new jobs.
    """
    preempting = len(sim.claim) > 0
    first = list_preemptors(sim) if preempting else ZERO
    n = first
    push = kept(sim.kept)
    for which in (ASIDE, MAIN):
        j = list_first(which, push)
        while j != list_end(which, push):
            sim.later[n] = j
            n += 1
            j = push[j].next
    n = order_fresh(n, sim)
    if first == 0:
        return n
    size = first
    for i in range(first, n):
        if not may_preempt(sim.later[i], sim):
            sim.later[size] = sim.later[i]
            size += 1
    return size
