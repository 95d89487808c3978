"""Which pending jobs may start on shared nodes, their starts, and reservations that outlive a pass."""

from __future__ import annotations

from hpctwin.engine.capacity.maintenance_windows import window_left, windows_before
from hpctwin.engine.capacity.persistent_reservations import held
from hpctwin.engine.capacity.plan import active_from, plan_build, plan_reach
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.shared import free_table
from hpctwin.engine.shared.allocation import (
    free_at,
    start_shared,
    take_from_promises,
    take_resources,
)
from hpctwin.engine.shared.fit import (
    begin_pass,
    fits_over,
    goes_by_kind,
    is_longer,
    is_there,
    keeps_off,
    mark_pools,
    may_fit,
    resources_fit,
    stops_early,
)
from hpctwin.engine.shared.mixed_tasks import fits_by_kind
from hpctwin.engine.shared.node_resources import ALONE, CORES
from hpctwin.engine.shared.placement import choose
from hpctwin.engine.shared.reservations.node_reservations import (
    choose_promised,
    forget_all,
    forget_links,
    free_row,
    link,
    promise_nodes,
    reserve_shared,
    take_off,
)
from hpctwin.engine.shared.total_free import has_table, row_at, search_rows
from hpctwin.engine.state.layout import NEVER, RETURN, TAKE, WAITING, ZERO, Arrays
from hpctwin.engine.state.records import Grid

__all__ = [
    "begin_with_held",
    "finds_again",
    "free_held",
    "free_unheld",
    "give_back_held",
    "hold",
    "load_held",
    "put_held",
    "start_held",
    "take_held",
]


@jit
def begin_with_held(sim: Arrays) -> None:
    """Begin a pass in which held reservations are to be loaded."""
    begin_pass(sim)
    if sim.asks.width > 0:
        plan_build(sim)


@jit
def load_held(sim: Arrays) -> bool:
    """Put all held reservations on their nodes, if they are not on them since the last pass.

    See `put_held`. They must be put again if a job is overdue, because it may stay in their way.
    """
    linked = sim.rooms.linked
    first = sim.clock.run_first
    overdue = first < sim.clock.run_end and sim.run[first].planned <= sim.clock.now
    if linked == 0 or overdue:
        forget_links(sim)
    fits = put_held(sim)
    sim.rooms.linked = 0 if overdue or len(sim.cut) > 0 else 1
    return fits


@jit
def free_unheld(sim: Arrays) -> None:
    """Free the rows of reservations that no pending job holds; all rows are on no nodes."""
    for row in range(sim.sharing.promises):
        sim.promise[row].ahead = 0
    for i in range(sim.clock.queued):
        own = held(sim.kept)[sim.queue[i]]
        row = own.first if own.start >= 0 else -1
        while row >= 0:
            sim.promise[row].ahead = 1
            row = sim.promise[row].next
    for row in range(sim.sharing.promises):
        if sim.promise[row].node >= 0 and sim.promise[row].ahead == 0:
            free_row(row, sim)


@jit
def put_nodes(j: int, sim: Arrays) -> bool:
    """Put a held reservation on its nodes; return False if one of them is not available.

    If ``sim.rooms.linked`` is 1, it is on them already.
    """
    row = held(sim.kept)[j].first
    while row >= 0:
        own = sim.promise[row]
        node = sim.node[own.node]
        if node.down > 0:
            return False
        if node.hidden == 1 and active_from(own.node, sim) > own.start:
            return False
        if keeps_off(own.kind, own.node, own.start, own.end, sim):
            return False
        if sim.rooms.linked == 0:
            free_at(own.node, own.start, sim)
            link(row, sim)
        row = own.next
    return True


@jit
def put_held(sim: Arrays) -> bool:
    """Put held reservations on their nodes; see `put_nodes`.

    Returns:
        False if too little is left free when a reservation begins, or a node is not available.
    """
    for i in range(sim.clock.queued):
        j = sim.queue[i]
        start = held(sim.kept)[j].start
        if start < 0:
            continue
        if not put_nodes(j, sim):
            return False
        take_resources(j, start, start + sim.job[j].expected, TAKE, sim)
    for row in range(sim.sharing.promises):
        if sim.promise[row].node >= 0:
            for c in range(sim.promise_left.width):
                if sim.promise_left[row, c] < 0:
                    return False
    if sim.asks.width > 0:
        plan_reach(NEVER, sim)
    for i in range(sim.plan_rows[0] if sim.asks.width > 0 else 0):
        for c in range(sim.rules.pools, sim.plan_amount.width):
            if sim.plan_amount[i, c] < 0:
                return False
    return True


@jit
def hold(j: int, sim: Arrays) -> None:
    """Reserve the earliest nodes for a job, and keep the reservation."""
    start, first = reserve_shared(j, ZERO, sim)
    held(sim.kept)[j].start = start
    held(sim.kept)[j].first = first


@jit
def finds_again(j: int, sim: Arrays) -> bool:
    """Return whether a job's held reservation is where a search would put it, after moving it there.

    False says nothing. The free table must prove that the job fits at no earlier time, and which
    nodes it gets. Both must depend on cores only.
    """
    kind = sim.job[j].kind
    if len(sim.cut) > 0 or sim.sharing.owners > 0 or not stops_early(sim):
        return False
    if goes_by_kind(kind, sim) or sim.shape[kind].exclusive == 1 or sim.needs[kind, CORES] == 0:
        return False
    for c in range(sim.needs.width):
        if c != CORES and c != ALONE and sim.needs[kind, c] > 0:
            return False
    if not has_table(sim):
        return False
    own = held(sim.kept)[j]
    time = search_rows(j, sim.clock.now, own.start, own.first, sim)
    end = time + sim.job[j].expected
    if time == own.start:
        row = sim.rooms.spanned
        if row < 0:
            row = row_at(time, sim)
            free_table.begin_least(row, sim.least_later, sim)
        while row < sim.rooms.sums and sim.sum_time[row] < end:
            free_table.lower_least(row, sim.least_later, sim)
            row += 1
        free_table.least_with(own.first, sim)
    elif sim.rooms.bounded == 0:
        return False
    sim.rooms.bounded = 0
    mark_pools(kind, time, end, sim)
    if not list_fits(kind, time, sim):
        return False
    choose(j, sim)
    if time == own.start and is_chosen(own.first, sim):
        return True
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0:
            return False
    free_held(j, sim)
    for n in range(sim.sharing.chosen):
        free_at(sim.chosen_nodes[n], time, sim)
    own.start = time
    own.first = promise_nodes(j, time, end, sim)
    return True


@jit
def list_fits(kind: int, begin: int, sim: Arrays) -> bool:
    """Set ``sim.fits`` by ``sim.least_cores`` from a time on, by number of node.

    Nodes after the last one that a job of the kind gets are omitted.

    Returns:
        Whether it fits.
    """
    shape = sim.shape[kind]
    enough = shape.tasks if shape.spread == 1 else shape.nodes
    total = nodes = 0
    sim.rooms.first = len(sim.share)
    for node in range(len(sim.share)):
        fits = ZERO
        if sim.least_cores[node] >= sim.needs[kind, CORES] and is_there(node, begin, sim):
            fits = sim.least_cores[node] // sim.needs[kind, CORES]
            if nodes == 0:
                sim.rooms.first = node
            total += min(fits, shape.most)
            nodes += 1
        sim.fits[node] = fits
        if total >= shape.tasks and nodes >= enough:
            return True
    return False


@jit
def is_chosen(first: int, sim: Arrays) -> bool:
    """Return whether the chosen nodes are those of a reservation, given by its first row."""
    n = 0
    row = first
    while row >= 0:
        own = sim.promise[row]
        if n == sim.sharing.chosen or sim.chosen_nodes[n] != own.node:
            return False
        if sim.chosen_tasks[n] != own.tasks:
            return False
        n += 1
        row = own.next
    return n == sim.sharing.chosen


@jit
def free_held(j: int, sim: Arrays) -> None:
    """Free the nodes of a held reservation."""
    take_off(held(sim.kept)[j].first, False, sim)


@jit
def give_back_held(j: int, sim: Arrays) -> None:
    """Free the nodes and cluster-wide resources of a held reservation."""
    start = held(sim.kept)[j].start
    take_resources(j, start, start + sim.job[j].expected, RETURN, sim)
    free_held(j, sim)


@jit
def take_held(j: int, sim: Arrays) -> None:
    """Do nothing: a held reservation is on its nodes already."""


@jit
def start_held(j: int, sim: Arrays) -> None:
    """Start a job whose held reservation begins now."""
    first = held(sim.kept)[j].first
    choose_promised(first, sim)
    take_off(first, True, sim)
    start_shared(j, sim)
    if sim.state[j].start > sim.clock.now:
        # It ends later than reserved because its nodes are not on yet.
        take_from_promises(j, sim.clock.now + sim.job[j].expected, sim)


MANY_KINDS = 512
"""Maximum number of kinds of jobs for which `any_may_fit` tests jobs or kinds."""


@jit
def count_waiting(sim: Arrays) -> None:
    """Count the pending jobs of each kind if `any_may_fit` tests kinds.

    Counts that add up to the pending jobs are right. They do not if the queue was made elsewhere.
    """
    kinds = len(sim.tried)
    if kinds > MANY_KINDS or kinds >= sim.clock.queued:
        return
    total = 0
    for kind in range(kinds):
        total += sim.tried[kind].waiting
    if total == sim.clock.queued - sim.race.gone:
        return
    for kind in range(kinds):
        sim.tried[kind].waiting = 0
    for i in range(sim.clock.queued):
        if sim.state[sim.queue[i]].phase == WAITING:
            sim.tried[sim.job[sim.queue[i]].kind].waiting += 1


@jit
def any_may_fit(sim: Arrays) -> bool:
    """Return whether any pending job may fit what is free now.

    It tests each kind of job, or each job if there are fewer of them. If none may fit, no pass
    needs to check all jobs.
    """
    kinds = len(sim.tried)
    if kinds > MANY_KINDS:
        return True
    by_kind = kinds < sim.clock.queued
    for i in range(min(kinds, sim.clock.queued)):
        kind = i if by_kind else sim.job[sim.queue[i]].kind
        waits = sim.tried[i].waiting > 0 if by_kind else sim.state[sim.queue[i]].phase == WAITING
        if waits and may_fit(kind, sim):
            return True
    return False


@jit
def begin_anew(sim: Arrays) -> None:
    """Begin a pass without any reservations."""
    begin_pass(sim)
    forget_all(sim)
    count_waiting(sim)
    sim.plan_rows[0] = 0
    if sim.asks.width > 0:
        plan_build(sim)


@jit
def note_misfit(kind: int, end: int, sim: Arrays) -> None:
    """Record that no job of a kind fits that begins now and ends as late as a time.

    The same holds for shorter jobs during which the same reservations and windows begin. These are
    searched only if that costs no more than checking the nodes.
    """
    now = sim.clock.now
    last = end - 1
    if sim.sharing.promises <= len(sim.share):
        last = now
        windows = windows_before(end, sim)
        if windows > 0:
            last = max(last, sim.window[window_left(windows - 1, sim)].start)
        for row in range(sim.sharing.promises):
            if sim.promise[row].node >= 0 and sim.promise[row].start < end:
                last = max(last, sim.promise[row].start)
    sim.tried[kind].look = sim.sharing.looks
    sim.tried[kind].length = last - now + 1


@jit
def fits_from(j: int, begin: int, base: Grid[int], sim: Arrays) -> bool:
    """Return whether a job fits over a span that begins at a time.

    See `fits_over` and `fits_by_kind`.
    """
    if goes_by_kind(sim.job[j].kind, sim):
        return fits_by_kind(j, begin, base, sim)
    return fits_over(j, begin, base, sim)


@jit
def fits_plan_now(j: int, sim: Arrays) -> bool:
    """Return whether a job fits the plan from now on; sets what `choose` reads."""
    now = sim.clock.now
    if is_longer(j, sim) or not resources_fit(j, now, sim):
        return False
    if not fits_from(j, now, sim.left, sim):
        note_misfit(sim.job[j].kind, now + sim.job[j].expected, sim)
        return False
    return True


@jit
def start_chosen(j: int, sim: Arrays) -> None:
    """Start a job that was just found to fit."""
    choose(j, sim)
    start_shared(j, sim)
    take_from_promises(j, sim.clock.now, sim)


@jit
def start_if_it_fits(j: int, sim: Arrays) -> bool:
    """Start a job if it fits the plan from now on; return whether it started."""
    fits = fits_plan_now(j, sim)
    if fits:
        start_chosen(j, sim)
    return fits
