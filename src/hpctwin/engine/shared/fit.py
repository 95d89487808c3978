"""How many tasks fit on a node, now or over a future span of time."""

from __future__ import annotations

import numpy as np

from hpctwin.engine.capacity.maintenance_windows import window_left, windows_before
from hpctwin.engine.capacity.plan import active_from, plan_reach, planned_end
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.queue.limits import at_any_limit
from hpctwin.engine.shared.fit_cache import (
    close_block,
    close_node,
    forget_openings,
    is_open,
    is_open_block,
)
from hpctwin.engine.shared.gpus import lay
from hpctwin.engine.shared.node_resources import (
    CORES,
    common_room,
    consumables_on,
    copy_all,
    copy_row,
    take_asked,
    take_held,
    tasks_on,
)
from hpctwin.engine.shared.reservation_list import first_over
from hpctwin.engine.state.layout import AMOUNTS, BLOCK, FIRST_FIT, LOWEST, NEVER, Arrays
from hpctwin.engine.state.records import Grid

USER, ACCOUNT = np.array([1, 2])
"""Values of `Shape.shared_with`: a job shares nodes only in its user or account.

They are the numbers of `model.requests.chunks.SHARED_WITH`.
"""

FREED = 256
"""Number of nodes in ``sim.freed``; equal to `operations.creation.FREED`."""


@jit
def is_up(kind: int, node: int, sim: Arrays) -> bool:
    """Return whether a node has not failed and a kind of job may use it."""
    return sim.eligible[kind, sim.pool_of[node]] != 0 and sim.node[node].down == 0


@jit
def mark_pools(kind: int, begin: int, end: int, sim: Arrays) -> None:
    """Mark in ``sim.take`` the pools that a kind of job may use throughout a span.

    They are not blocked, and have no maintenance during the span.
    """
    for p in range(sim.rules.pools):
        sim.take[p] = sim.eligible[kind, p] if sim.blocked[p] == 0 else 0
    for i in range(windows_before(end, sim)):
        window = sim.window[window_left(i, sim)]
        if window.pool < sim.rules.pools and begin < window.end:
            sim.take[window.pool] = 0


@jit
def is_there(node: int, begin: int, sim: Arrays) -> bool:
    """Return whether a node is up, in a marked pool, and available from a time on."""
    own = sim.node[node]
    if sim.take[sim.pool_of[node]] == 0 or own.down > 0:
        return False
    return own.hidden == 0 or active_from(node, sim) <= begin


@jit
def go_together(kind: int, other: int, sim: Arrays) -> bool:
    """Return whether jobs of two kinds may share a node, by their users and accounts.

    If they may not, the jobs are incompatible.
    """
    one = sim.shape[kind]
    two = sim.shape[other]
    if (one.shared_with == USER or two.shared_with == USER) and one.user != two.user:
        return False
    of_account = one.shared_with == ACCOUNT or two.shared_with == ACCOUNT
    return not of_account or one.account == two.account


@jit
def goes_at(j: int, sim: Arrays) -> int:
    """Return when a running job is expected to leave its nodes.

    A job that is preempted, or would be (`Cut.tried`), may leave before its planned end.
    """
    planned = planned_end(j, sim)
    if len(sim.cut) > 0 and (sim.cut[j].leaves > 0 or sim.cut[j].tried == 1):
        return min(planned, sim.cut[j].leaves)
    return planned


@jit
def runs_apart(kind: int, node: int, time: int, sim: Arrays) -> bool:
    """Return whether an incompatible job is on a node, and still will be at a time."""
    if sim.sharing.owners == 0:
        return False
    row = sim.share[node].part
    while row >= 0:
        part = sim.part[row]
        if goes_at(part.job, sim) > time and not go_together(kind, part.kind, sim):
            return True
        row = part.after
    return False


@jit
def keeps_off(kind: int, node: int, begin: int, end: int, sim: Arrays) -> bool:
    """Return whether an incompatible job uses or has reserved a node in a span.

    It is a job that may not share the node with the given kind.
    """
    if sim.sharing.owners == 0:
        return False
    if runs_apart(kind, node, begin, sim):
        return True
    row = first_over(node, begin, sim)
    while row >= 0 and sim.promise[row].start < end:
        promise = sim.promise[row]
        if promise.end > begin and not go_together(kind, promise.kind, sim):
            return True
        row = promise.after
    return False


@jit
def stops_early(sim: Arrays) -> bool:
    """Return whether nodes are used by number.

    Once enough nodes are found, no others need to be checked.
    """
    return sim.rules.placement == FIRST_FIT and sim.rules.preferred == LOWEST


@jit
def reckon_least(node: int, begin: int, end: int, base: Grid[int], sim: Arrays) -> None:
    """Set ``sim.min_free`` of a node to the minimum of each free amount over a span.

    Args:
        node: Node.
        begin, end: The span, ms.
        base: What running jobs leave free on each node when the span begins.
        sim: Simulation.
    """
    copy_row(base, node, sim.min_free, node)
    pruned = sim.rooms.pruned == 1
    p = sim.share[node].since if pruned else first_over(node, begin, sim)
    while p >= 0:
        promise = sim.promise[p]
        if promise.start > begin:
            break
        if begin < promise.end:
            take_held(promise.kind, node, promise.tasks, sim.min_free, node, sim)
        p = promise.ahead if pruned else promise.after
    # Running jobs only release amounts. The minimum is therefore at the start of the span, or at
    # the start of a reservation.
    while p >= 0:
        promise = sim.promise[p]
        if promise.start >= end:
            break
        for c in range(AMOUNTS):
            sim.min_free[node, c] = min(sim.min_free[node, c], sim.promise_left[p, c])
        if sim.min_free.width > AMOUNTS:
            for c in range(AMOUNTS, sim.min_free.width):
                sim.min_free[node, c] = min(sim.min_free[node, c], sim.promise_left[p, c])
        p = promise.after


@jit
def fits_over(j: int, begin: int, base: Grid[int], sim: Arrays) -> bool:
    """Return whether a job fits if it begins at a time; see `kind_fits_over`."""
    return kind_fits_over(sim.job[j].kind, begin, begin + sim.job[j].expected, base, sim)


@jit
def kind_fits_over(kind: int, begin: int, end: int, base: Grid[int], sim: Arrays) -> bool:
    """Return whether a kind of job fits over a span; sets ``sim.fits`` and ``sim.min_free``.

    If nodes are used by number, it checks no more nodes than it must (`stops_early`).
    ``sim.rooms.first`` is the first node on which a task fits. If ``sim.rooms.bounded`` is 1, at most
    ``sim.least_cores`` are free on each node.

    Args:
        kind: Kind of job.
        begin, end: The span, ms.
        base: What running jobs leave free on each node when the span begins.
        sim: Simulation.
    """
    shape = sim.shape[kind]
    mark_pools(kind, begin, end, sim)
    in_order = stops_early(sim)
    enough = shape.tasks if shape.spread == 1 else shape.nodes
    at_once = begin == sim.clock.now
    uses_up = base.width > AMOUNTS
    reckons = not in_order or shape.gpus > 0
    bounded = sim.rooms.bounded == 1
    total = 0
    nodes = 0
    sim.rooms.first = len(sim.share)
    for block in range(len(sim.open_block)):
        full = at_once and not is_open_block(kind, block, sim)
        for node in range(block * BLOCK, min((block + 1) * BLOCK, len(sim.share))):
            fits = 0
            closed = full or (at_once and not is_open(kind, node, sim))
            if bounded and sim.least_cores[node] < sim.needs[kind, CORES]:
                closed = True
            if not closed and is_there(node, begin, sim):
                free = base
                if reckons or sim.share[node].promise >= 0:
                    reckon_least(node, begin, end, base, sim)
                    free = sim.min_free
                fits = common_room(kind, node, free, sim)
                if fits > 0 and uses_up:
                    fits = min(fits, consumables_on(kind, node, free, sim))
                if fits > 0 and keeps_off(kind, node, begin, end, sim):
                    fits = 0
            sim.fits[node] = fits
            if fits > 0:
                if nodes == 0:
                    sim.rooms.first = node
                total += min(fits, shape.most)
                nodes += 1
                if in_order and total >= shape.tasks and nodes >= enough:
                    return True
    return total >= shape.tasks and nodes >= shape.nodes


@jit
def seat(kind: int, node: int, tasks: int, sim: Arrays) -> None:
    """Count tasks of a kind on a node, as the other kinds of the job's tasks see them.

    See `mixed_tasks`.
    """
    sim.seated[node] += tasks
    take_asked(kind, tasks, sim.remains, node, sim)


@jit
def room_beside(kind: int, node: int, sim: Arrays) -> int:
    """Return how many tasks of a kind fit on a node next to the job's other kinds."""
    room = tasks_on(kind, node, sim.remains, sim)
    return min(room, sim.shape[kind].most - sim.seated[node]) if sim.seated[node] > 0 else room


@jit
def goes_by_kind(kind: int, sim: Arrays) -> bool:
    """Return whether `mixed_tasks` chooses a job's nodes.

    The job then has tasks of several kinds, or all its nodes must be in one of several sets.
    """
    return sim.shape[kind].more >= 0 or sim.shape[kind].among >= 0


@jit
def first_among(kind: int, sim: Arrays) -> int:
    """Return the kind of a job on the first set of nodes that it may have.

    If it may have any nodes, that is the kind itself.
    """
    return sim.shape[kind].among if sim.shape[kind].among >= 0 else kind


@jit
def is_longer(j: int, sim: Arrays) -> bool:
    """Return whether a job is at least as long as one of its kind that did not fit.

    Expected runtimes are compared. For a job that `goes_by_kind`, that proves nothing: with less
    capacity, its first tasks may be placed on other nodes.
    """
    kind = sim.job[j].kind
    if goes_by_kind(kind, sim):
        return False
    tried = sim.tried[kind]
    return tried.look == sim.sharing.looks and sim.job[j].expected >= tried.length


@jit
def kinds_fit_empty(kind: int, sim: Arrays) -> bool:
    """Return `fits_empty` for a job that `goes_by_kind`, with nodes by number."""
    first = first_among(kind, sim)
    while first >= 0:
        if _all_fit_empty(first, sim):
            return True
        first = sim.shape[first].among
    return False


@jit
def _all_fit_empty(first: int, sim: Arrays) -> bool:
    copy_all(sim.whole, sim.remains)
    for node in range(len(sim.share)):
        sim.seated[node] = 0
    kind = first
    while kind >= 0:
        left = sim.shape[kind].tasks
        nodes = 0
        for node in range(len(sim.share)):
            if is_up(kind, node, sim):
                room = min(room_beside(kind, node, sim), sim.shape[kind].most)
                if room > 0:
                    nodes += 1
                    _seat_empty(kind, node, min(room, left), sim)
                    left -= min(room, left)
        if left > 0 or nodes < sim.shape[kind].nodes:
            return False
        kind = sim.shape[kind].more
    return True


@jit
def _seat_empty(kind: int, node: int, tasks: int, sim: Arrays) -> None:
    """Do the same as `seat`, with GPUs.

    The parts chosen for a job are preserved: these GPUs are written behind them.
    """
    chosen = sim.sharing.chosen
    seat(kind, node, tasks, sim)
    lay(kind, node, tasks, sim.remains, sim)
    sim.sharing.chosen = chosen


@jit
def fits_empty(kind: int, sim: Arrays) -> bool:
    """Return whether a kind of job would fit the nodes that are up if all were empty."""
    shape = sim.shape[kind]
    if goes_by_kind(kind, sim):
        return kinds_fit_empty(kind, sim)
    total = 0
    nodes = 0
    for node in range(len(sim.share)):
        if is_up(kind, node, sim):
            fits = min(tasks_on(kind, node, sim.whole, sim), shape.most)
            if fits > 0:
                total += fits
                nodes += 1
                if total >= shape.tasks and nodes >= shape.nodes:
                    return True
    return False


@jit
def may_fit(kind: int, sim: Arrays) -> bool:
    """Return whether a kind of job fits what is free now.

    Reservations and maintenance are ignored. If the job has tasks of several kinds, only the first
    kind is tested, because it comes first wherever the job starts. A kind that did not fit is
    tested again only after nodes got back enough to hold as many tasks as were missing.

    The function is called for each pending job, and therefore small.
    """
    tried = sim.tried[kind]
    if tried.short > 0 and tried.at == sim.sharing.freed:
        return False
    return came_to_fit(kind, sim) and fits_now(kind, sim)


@jit
def came_to_fit(kind: int, sim: Arrays) -> bool:
    """Return whether a kind of job may fit by what nodes got back since it did not."""
    tried = sim.tried[kind]
    freed = sim.sharing.freed
    if tried.short == 0 or freed - tried.at > FREED:
        return True
    gained = 0
    for f in range(tried.at, freed):
        node = sim.freed[f % FREED]
        if is_up(kind, node, sim):
            gained += min(tasks_on(kind, node, sim.left, sim), sim.shape[kind].most)
    if gained >= tried.short:
        return True
    tried.at = freed
    tried.short -= gained
    return False


@jit
def fits_now(kind: int, sim: Arrays) -> bool:
    """Return the same as `may_fit`, by checking the nodes.

    It records how many tasks are missing.
    """
    shape = sim.shape[kind]
    tried = sim.tried[kind]
    total = 0
    nodes = 0
    uses_up = sim.left.width > AMOUNTS
    for block in range(len(sim.open_block)):
        if not is_open_block(kind, block, sim):
            continue
        some = False
        for node in range(block * BLOCK, min((block + 1) * BLOCK, len(sim.share))):
            if not is_open(kind, node, sim):
                continue
            fits = common_room(kind, node, sim.left, sim)
            if fits > 0 and uses_up:
                fits = min(fits, consumables_on(kind, node, sim.left, sim))
            if fits <= 0:
                close_node(kind, node, sim)
                continue
            some = True
            now = sim.clock.now
            if is_up(kind, node, sim) and not keeps_off(kind, node, now, now, sim):
                total += min(fits, shape.most)
                nodes += 1
                if total >= shape.tasks and nodes >= shape.nodes:
                    tried.short = 0
                    return True
        if not some:
            close_block(kind, block, sim)
    tried.at = sim.sharing.freed
    tried.short = max(1, shape.tasks - total)
    return False


@jit
def asks_too_much_shared(j: int, sim: Arrays) -> bool:
    """Return whether a job does not fit the nodes that are up, even if all were empty."""
    kind = sim.job[j].kind
    tried = sim.tried[kind]
    if tried.faults != sim.clock.faults:
        tried.faults = sim.clock.faults
        tried.held = 1 if fits_empty(kind, sim) else 0
    return tried.held == 0


@jit
def is_skipped_shared(j: int, sim: Arrays) -> bool:
    """Return whether a pass skips a job.

    It does if the job would not fit the nodes that are up, or if a limit is reached.
    """
    return asks_too_much_shared(j, sim) or at_any_limit(j, sim)


@jit
def begin_pass(sim: Arrays) -> None:
    """Begin a pass: block nothing.

    If nodes failed or returned, kinds that did not fit will be tested again.
    """
    if sim.rooms.valid == 0:
        forget_openings(sim)
    for c in range(len(sim.blocked)):
        sim.blocked[c] = 0
    sim.sharing.looks += 1
    sim.rooms.sums = sim.rooms.table = sim.rooms.searches = 0
    if sim.sharing.faults != sim.clock.faults:
        sim.sharing.faults = sim.clock.faults
        sim.sharing.freed += FREED + 1


@jit
def short_resource(j: int, begin: int, sim: Arrays) -> int:
    """Return the first cluster-wide resource that is too scarce for a job; -1 if none.

    The plan decides, from ``begin`` to the job's expected end.
    """
    end = begin + sim.job[j].expected
    pools = sim.rules.pools
    for c in range(sim.asks.width):
        if sim.asks[j, c] > 0:
            plan_reach(end, sim)
            for i in range(sim.plan_rows[0]):
                upto = sim.plan_time[i + 1] if i + 1 < sim.plan_rows[0] else NEVER
                if upto > begin and sim.plan_time[i] < end:
                    if sim.plan_amount[i, pools + c] < sim.asks[j, c]:
                        return c
    return -1


@jit
def resources_fit(j: int, begin: int, sim: Arrays) -> bool:
    """Return whether the plan has a job's cluster-wide resources free over a span."""
    return short_resource(j, begin, sim) < 0
