"""Reservations on shared nodes, and the earliest time at which a job fits."""

from __future__ import annotations

from hpctwin.engine.capacity.plan import active_from
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.heap import heap_pop, heap_push
from hpctwin.engine.shared.allocation import put_back, take_resources
from hpctwin.engine.shared.fit import (
    fits_over,
    goes_at,
    goes_by_kind,
    is_there,
    keeps_off,
    mark_pools,
    resources_fit,
)
from hpctwin.engine.shared.mixed_tasks import fits_by_kind
from hpctwin.engine.shared.node_resources import (
    ALL,
    ALONE,
    CORES,
    GPUS,
    MEMORY,
    copy_all,
    copy_row,
    give_held,
    take_held,
    tasks_on,
)
from hpctwin.engine.shared.placement import choose
from hpctwin.engine.shared.reservation_list import first_over, insert, remove
from hpctwin.engine.shared.reservations.earliest_start import is_plain, soonest
from hpctwin.engine.shared.total_free import (
    change_sums,
    enough_from,
    first_after,
    forget_sums,
)
from hpctwin.engine.state.layout import AMOUNTS, NEVER, ONE, RETURN, TAKE, ZERO, Arrays

ANY_NODE = -1
"""Heap entry: something may become free on any node."""
PROMISED = -2
"""Heap entry, minus the first row of a reservation: the reservation ends."""


@jit
def new_row(sim: Arrays) -> int:
    """Return a free row for a reservation."""
    sharing = sim.sharing
    if sharing.spare > 0:
        row = sharing.spare - 1
        sharing.spare = sim.promise[row].next + 1
        return row
    row = sharing.promises
    sharing.promises = row + 1
    return row


@jit
def link(row: int, sim: Arrays) -> None:
    """Add a reservation to its node, and update what is left when reservations begin.

    ``sim.promise_left`` is set for the reservation, and reduced for all that begin during it.
    ``sim.free_at`` of the node must be what running jobs leave free when the reservation begins.
    """
    own = sim.promise[row]
    node = own.node
    kind = own.kind
    copy_row(sim.free_at, node, sim.promise_left, row)
    take_held(kind, node, own.tasks, sim.promise_left, row, sim)
    p = first_over(node, own.start, sim)
    while p >= 0:
        other = sim.promise[p]
        if other.start >= own.end:
            break
        if other.start <= own.start and own.start < other.end:
            take_held(other.kind, node, other.tasks, sim.promise_left, row, sim)
        if own.start <= other.start:
            take_held(kind, node, own.tasks, sim.promise_left, p, sim)
        p = other.after
    insert(row, sim)


@jit
def unlink(row: int, kept: bool, sim: Arrays) -> None:
    """Remove a reservation from its node, and return what it took.

    Nothing is returned if ``kept``: the job has started there.
    """
    remove(row, sim)
    own = sim.promise[row]
    if kept:
        return
    p = first_over(own.node, own.start, sim)
    while p >= 0:
        other = sim.promise[p]
        if other.start >= own.end:
            break
        if own.start <= other.start:
            give_held(own.kind, own.node, own.tasks, sim.promise_left, p, sim)
        p = other.after


@jit
def promise_nodes(j: int, start: int, end: int, sim: Arrays) -> int:
    """Reserve the chosen nodes for a job over a span, without cluster-wide resources.

    ``sim.free_at`` of the nodes must be what running jobs leave free when the span begins.

    Returns:
        First row of the reservation.
    """
    following = -1
    for n in range(sim.sharing.chosen - 1, -1, -1):
        row = new_row(sim)
        own = sim.promise[row]
        own.job = j
        own.start = start
        own.end = end
        own.node = sim.chosen_nodes[n]
        own.tasks = sim.chosen_tasks[n]
        own.kind = sim.of_kind[n]
        own.next = following
        own.first = 0
        link(row, sim)
        following = row
    sim.promise[following].first = 1
    change_sums(following, TAKE, sim)
    return following


@jit
def promise(j: int, start: int, end: int, sim: Arrays) -> int:
    """Reserve the chosen nodes and resources over a span; return the first row."""
    take_resources(j, start, end, TAKE, sim)
    return promise_nodes(j, start, end, sim)


@jit
def forget_links(sim: Arrays) -> None:
    """Remove all reservations from their nodes; their rows stay."""
    sim.rooms.linked = 0
    for row in range(sim.sharing.promises):
        if sim.promise[row].node >= 0:
            sim.share[sim.promise[row].node].promise = -1
            sim.near[sim.promise[row].node] = 0


@jit
def forget_all(sim: Arrays) -> None:
    """Remove all reservations."""
    forget_links(sim)
    sim.sharing.promises = 0
    sim.sharing.spare = 0
    forget_sums(sim)


@jit
def reserve_shared(j: int, not_before: int, sim: Arrays) -> tuple[int, int]:
    """Reserve the earliest span that a job fits, not before a time.

    Returns:
        Start of the span, ms, and first row of the reservation.
    """
    start = earliest(j, not_before, sim)
    choose(j, sim)
    return start, promise(j, start, start + sim.job[j].expected, sim)


@jit
def earliest(j: int, not_before: int, sim: Arrays) -> int:
    """Return the earliest time from ``not_before`` on at which a job fits.

    It sets ``sim.fits`` and ``sim.min_free``, and ``sim.free_at`` of the nodes on which the job fits
    to what running jobs leave free then. It visits the times at which something becomes free,
    from the first one on at which all nodes together have enough. If a node got nothing back by a
    time, no more tasks fit on it than before. Only the other nodes are therefore checked again. If
    that makes enough, all nodes are checked.
    """
    if is_plain(j, not_before, sim):
        return soonest(j, sim)
    time = enough_from(j, max(sim.clock.now, not_before), sim)
    copy_all(sim.left, sim.free_at)
    running = sim.clock.run_end
    now = sim.clock.now
    r = sim.clock.run_first
    n = ZERO
    while r < running and sim.run[r].planned <= now:
        n = _leaves(sim.run[r].job, time, n, sim)
        r += 1
    if len(sim.cut) > 0:
        for place in range(r, running):
            if leaves_early(place, sim):
                n = _leaves(sim.run[place].job, time, n, sim)
    while r < running and sim.run[r].planned <= time:
        if sim.run[r].job >= 0 and not leaves_early(r, sim):
            put_back(sim.run[r].job, sim)
        r += 1
    sim.sharing.counted = 0
    fits = _fits_from(j, time, sim)
    sim.rooms.bounded = 0
    if fits:
        return time
    sim.rooms.pruned = 1
    for node in range(len(sim.share)):
        sim.share[node].since = sim.share[node].promise
    ordered = sim.rooms.sums > 0
    for row in range(sim.sharing.promises):
        own = sim.promise[row]
        own.ahead = own.after
        if not ordered and own.node >= 0 and own.first == 1 and own.end > time:
            n = heap_push(sim.times, n, own.end, PROMISED - row)
    p = first_after(time, sim) if ordered else sim.rooms.promised
    if sim.clock.unpowered > 0:
        for node in range(len(sim.share)):
            if sim.node[node].hidden == 1 and active_from(node, sim) > time:
                n = heap_push(sim.times, n, active_from(node, sim), ANY_NODE)
    changes = sim.clock.changes_done
    while changes < len(sim.change) and sim.change[changes].time <= time:
        changes += 1
    while not _fits_from(j, time, sim):
        while changes < len(sim.change) and sim.change[changes].time <= _next_time(r, p, n, sim):
            # Something becomes free if a window ends, or if one begins with a negative amount.
            if sim.change[changes].sign > 0 or sim.change[changes].amount < 0:
                n = heap_push(sim.times, n, sim.change[changes].time, ANY_NODE)
            changes += 1
        time = _next_time(r, p, n, sim)
        assert time < NEVER  # a job that is not skipped fits once all others have left
        mark_pools(sim.job[j].kind, time, time + sim.job[j].expected, sim)
        while n > 0 and sim.times[0].time == time:
            _come_back(j, heap_pop(sim.times, n), time, sim)
            n -= 1
        while p < sim.rooms.promised and sim.promise_end[p].time == time:
            _come_back(j, PROMISED - sim.promise_end[p].job, time, sim)
            p += 1
        while r < running and sim.run[r].planned <= time:
            if sim.run[r].job >= 0 and not leaves_early(r, sim):
                _come_back(j, sim.run[r].job, time, sim)
            r += 1
    sim.rooms.pruned = 0
    return time


@jit
def leaves_early(place: int, sim: Arrays) -> bool:
    """Return whether a running job is preempted and leaves before its planned end.

    ``place`` is its place among the running jobs.
    """
    if len(sim.cut) == 0:
        return False
    r = sim.run[place].job
    return r >= 0 and 0 < sim.cut[r].leaves < sim.run[place].planned


@jit
def _leaves(j: int, time: int, n: int, sim: Arrays) -> int:
    """Add what a running job holds to ``sim.free_at`` if it leaves by a time.

    If it leaves later, its end is added to ``sim.times``.

    Returns:
        New number of entries in ``sim.times``.
    """
    if j < 0:
        return n
    if goes_at(j, sim) > time:
        return heap_push(sim.times, n, goes_at(j, sim), j)
    put_back(j, sim)
    return n


@jit
def _fits_from(j: int, time: int, sim: Arrays) -> bool:
    """Return whether a job fits over a span that begins at a time; see `earliest`."""
    sharing = sim.sharing
    if sharing.counted == 1 and (sharing.tasks_short > 0 or sharing.nodes_short > 0):
        return False
    if not resources_fit(j, time, sim):
        return False
    if goes_by_kind(sim.job[j].kind, sim):
        return fits_by_kind(j, time, sim.free_at, sim)
    if fits_over(j, time, sim.free_at, sim):
        return True
    shape = sim.shape[sim.job[j].kind]
    sharing.tasks_short = shape.tasks
    sharing.nodes_short = shape.nodes
    for node in range(len(sim.share)):
        sharing.tasks_short -= min(sim.fits[node], shape.most)
        sharing.nodes_short -= min(sim.fits[node], 1)
        sim.scarce[node].until = 0
    sharing.counted = 1
    return False


@jit
def _come_back(j: int, what: int, time: int, sim: Arrays) -> None:
    """Check nodes again on which something becomes free at a time.

    What a running job holds is added to ``sim.free_at``.

    Args:
        j: Job whose start is searched.
        what: Running job that ends; `PROMISED` minus the row of a reservation; or `ANY_NODE`.
        time: The time, ms.
        sim: Simulation.
    """
    if what >= 0:
        put_back(what, sim)
        row = sim.state[what].first_node
        while row >= 0:
            _look_again(j, sim.part[row].node, time, sim)
            row = sim.part[row].next
    elif what <= PROMISED:
        row = PROMISED - what
        while row >= 0:
            _look_again(j, sim.promise[row].node, time, sim)
            row = sim.promise[row].next
    else:
        sim.sharing.counted = 0


@jit
def _look_again(j: int, node: int, time: int, sim: Arrays) -> None:
    """Count again how many of a job's tasks fit on a node, if it may be more now."""
    if time <= sim.scarce[node].until and sim.sharing.counted == 1:
        return
    before = -1
    p = sim.share[node].since
    while p >= 0 and sim.promise[p].start <= time:
        if sim.promise[p].end > time:
            before = p
        elif before < 0:
            sim.share[node].since = sim.promise[p].ahead
        else:
            sim.promise[before].ahead = sim.promise[p].ahead
        p = sim.promise[p].ahead
    sharing = sim.sharing
    if sharing.counted == 0:
        return
    kind = sim.job[j].kind
    most = sim.shape[kind].most
    fits = 0
    sim.scarce[node].until = 0
    if is_there(node, time, sim):
        reckon_scarce(node, time, time + sim.job[j].expected, sim)
        fits = tasks_on(kind, node, sim.min_free, sim)
        if fits > 0 and keeps_off(kind, node, time, time + sim.job[j].expected, sim):
            fits = 0
        else:
            sim.scarce[node].until = scarce_until(kind, node, fits, sim)
    sharing.tasks_short += min(sim.fits[node], most) - min(fits, most)
    sharing.nodes_short += min(sim.fits[node], 1) - min(fits, 1)
    sim.fits[node] = fits


@jit
def reckon_scarce(node: int, begin: int, end: int, sim: Arrays) -> None:
    """Compute the minimum of each free amount of a node over a future span.

    It is written to ``sim.min_free``, as by `fit.reckon_least`. For each amount, ``sim.scarce``
    gets the last time at which as little is free.
    """
    copy_row(sim.free_at, node, sim.min_free, node)
    scarce = sim.scarce[node]
    scarce.cores = scarce.memory = scarce.gpus = scarce.alone = 0
    p = sim.share[node].since
    while p >= 0:
        promise = sim.promise[p]
        if promise.start > begin:
            break
        if begin < promise.end:
            take_held(promise.kind, node, promise.tasks, sim.min_free, node, sim)
        p = promise.ahead
    while p >= 0:
        promise = sim.promise[p]
        if promise.start >= end:
            break
        if sim.promise_left[p, CORES] <= sim.min_free[node, CORES]:
            sim.min_free[node, CORES] = sim.promise_left[p, CORES]
            scarce.cores = promise.start
        if sim.promise_left[p, MEMORY] <= sim.min_free[node, MEMORY]:
            sim.min_free[node, MEMORY] = sim.promise_left[p, MEMORY]
            scarce.memory = promise.start
        if sim.promise_left[p, GPUS] <= sim.min_free[node, GPUS]:
            sim.min_free[node, GPUS] = sim.promise_left[p, GPUS]
            scarce.gpus = promise.start
        if sim.promise_left[p, ALONE] <= sim.min_free[node, ALONE]:
            sim.min_free[node, ALONE] = sim.promise_left[p, ALONE]
            scarce.alone = promise.start
        for c in range(AMOUNTS, sim.min_free.width):
            sim.min_free[node, c] = min(sim.min_free[node, c], sim.promise_left[p, c])
        p = promise.after


@jit
def scarce_until(kind: int, node: int, fits: int, sim: Arrays) -> int:
    """Return until when at most ``fits`` tasks fit on a node.

    At that time, an amount is too scarce for one more task. It is 0 if there is no such time.
    """
    scarce = sim.scarce[node]
    until = ZERO
    if sim.min_free[node, CORES] < (fits + 1) * sim.needs[kind, CORES]:
        until = max(until, scarce.cores)
    if sim.min_free[node, MEMORY] < (fits + 1) * sim.needs[kind, MEMORY]:
        until = max(until, scarce.memory)
    if sim.min_free[node, GPUS] < (fits + 1) * sim.needs[kind, GPUS]:
        until = max(until, scarce.gpus)
    if fits == 0 and sim.min_free[node, ALONE] < (ALL if sim.shape[kind].exclusive == 1 else ONE):
        until = max(until, scarce.alone)
    return until


@jit
def _next_time(r: int, p: int, n: int, sim: Arrays) -> int:
    """Return when something becomes free next; `NEVER` if nothing does.

    Args:
        r: Place of the next running job.
        p: Place of the next reservation in ``sim.promise_end``.
        n: Number of other entries in ``sim.times``.
        sim: Simulation.
    """
    time = NEVER
    if p < sim.rooms.promised:
        time = sim.promise_end[p].time
    while r < sim.clock.run_end and sim.run[r].job < 0:
        r += 1
    if r < sim.clock.run_end:
        time = min(time, sim.run[r].planned)
    if n > 0:
        time = min(time, sim.times[0].time)
    return time


@jit
def free_row(row: int, sim: Arrays) -> None:
    """Free a row, which is on no node, for another reservation."""
    sim.promise[row].node = -1
    sim.promise[row].next = sim.sharing.spare - 1
    sim.sharing.spare = row + 1


@jit
def take_off(first: int, kept: bool, sim: Arrays) -> None:
    """Remove a job's reservation from its nodes and free its rows; see `unlink`."""
    change_sums(first, RETURN, sim)
    row = first
    while row >= 0:
        unlink(row, kept, sim)
        following = sim.promise[row].next
        free_row(row, sim)
        row = following


@jit
def choose_promised(first: int, sim: Arrays) -> None:
    """Choose the nodes that are reserved for a job."""
    n = ZERO
    row = first
    while row >= 0:
        sim.chosen_nodes[n] = sim.promise[row].node
        sim.chosen_tasks[n] = sim.promise[row].tasks
        sim.of_kind[n] = sim.promise[row].kind
        n += 1
        row = sim.promise[row].next
    sim.sharing.chosen = n
