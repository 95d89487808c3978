"""The lists of the backfill pushdown: each pending job is in one of three.

The lists are rings through the rows that pushdown keeps. The end of list ``k`` is the row ``k``
after the rows of the jobs. The waiting queue may be long and is searched from front to back. Its
jobs are therefore also kept in slots, so that a search does not follow a ring through memory. The
row at its end counts slots and jobs.
"""

from __future__ import annotations

import numpy as np

from hpctwin.engine.compile.jit import jit
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
