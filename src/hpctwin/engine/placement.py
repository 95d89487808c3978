"""Which nodes a job gets, where nodes have identity."""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    CONTIGUOUS,
    GIVEN,
    LEAST_DRAW,
    LOWEST,
    NEVER,
    RANDOM,
    SOONEST,
    SPREAD,
    Arrays,
)
from hpctwin.engine.plan import active_from


@jit
def is_free(node: int, sim: Arrays) -> bool:
    """Whether a job may have a node: it is up, not hidden, and nobody has it."""
    own = sim.node[node]
    return own.job < 0 and own.down == 0 and own.hidden == 0


@jit
def random_below(bound: int, sim: Arrays) -> int:
    """A whole number below ``bound``, from the simulation's own generator (splitmix64)."""
    # The same constants as in Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators.
    state = sim.clock.random + -7046029254386353131
    sim.clock.random = state
    z = state
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    z = z ^ ((z >> 31) & 0x1FFFFFFFF)
    return (z & 0x7FFFFFFFFFFFFFFF) % bound


@jit
def claim(j: int, node: int, sim: Arrays) -> None:
    """Give a node to a job."""
    sim.node[node].job = j
    sim.node[node].next = sim.state[j].first_node
    sim.state[j].first_node = node


@jit
def place(j: int, sim: Arrays) -> None:
    """Choose the nodes of a starting job: ``sim.take`` from each pool, and note them down."""
    placement = sim.rules.placement
    if sim.rules.preferred == GIVEN:
        return
    for p in range(sim.rules.pools):
        wanted = sim.take[p]
        if wanted == 0:
            continue
        if placement == CONTIGUOUS:
            _claim_runs(j, p, wanted, sim)
        elif placement == SPREAD or placement == RANDOM:
            _claim_some(j, p, wanted, sim)
        elif sim.rules.preferred == LOWEST:
            _claim_lowest(j, p, wanted, sim)
        else:
            _claim_powered(j, p, wanted, sim)


@jit
def _claim_lowest(j: int, p: int, wanted: int, sim: Arrays) -> None:
    i = sim.pool[p].first
    while wanted > 0:
        node = sim.by_pool[i]
        if is_free(node, sim):
            claim(j, node, sim)
            wanted -= 1
        i += 1


@jit
def nodes_ready(j: int, sim: Arrays) -> int:
    """When all nodes of a job are active; now where nodes have no power states."""
    ready = sim.clock.now
    if sim.rules.depths > 0:
        node = sim.state[j].first_node
        while node >= 0:
            ready = max(ready, active_from(node, sim))
            node = sim.node[node].next
    return ready


@jit
def _claim_powered(j: int, p: int, wanted: int, sim: Arrays) -> None:
    """The nodes active soonest; or, as SPARS does it, sleeping ones before idle ones."""
    now = sim.clock.now
    pool = sim.pool[p]
    idle = 0
    for i in range(pool.first, pool.last):
        node = sim.by_pool[i]
        if is_free(node, sim) and active_from(node, sim) <= now:
            idle += 1
    sleepers_first = sim.rules.preferred == LEAST_DRAW and idle < wanted
    while wanted > 0:
        best = NEVER
        for i in range(pool.first, pool.last):
            node = sim.by_pool[i]
            if is_free(node, sim):
                best = min(best, _rank(node, sleepers_first, sim))
        for i in range(pool.first, pool.last):
            node = sim.by_pool[i]
            if wanted > 0 and is_free(node, sim):
                if _rank(node, sleepers_first, sim) == best:
                    claim(j, node, sim)
                    wanted -= 1


@jit
def _rank(node: int, sleepers_first: bool, sim: Arrays) -> int:
    now = sim.clock.now
    ready = active_from(node, sim)
    if sim.rules.preferred == SOONEST:
        return ready
    # Among idle nodes the one that has been idle longest; who is freed now is still booked as computing.
    if ready <= now:
        return now if sim.node[node].power != 0 else sim.node[node].since
    return -NEVER if sleepers_first else ready


@jit
def _claim_some(j: int, p: int, wanted: int, sim: Arrays) -> None:
    pool = sim.pool[p]
    free = 0
    for i in range(pool.first, pool.last):
        if is_free(sim.by_pool[i], sim):
            free += 1
    seen = 0
    taken = 0
    for i in range(pool.first, pool.last):
        node = sim.by_pool[i]
        if not is_free(node, sim):
            continue
        if sim.rules.placement == SPREAD:
            chosen = taken < wanted and seen == taken * free // wanted
        else:
            # Selection sampling (Knuth, TAOCP 3.4.2 S): each set of nodes is equally likely.
            chosen = random_below(free - seen, sim) < wanted - taken
        if chosen:
            claim(j, node, sim)
            taken += 1
        seen += 1


@jit
def _claim_runs(j: int, p: int, wanted: int, sim: Arrays) -> None:
    first = sim.pool[p].first
    last = sim.pool[p].last
    while wanted > 0:
        best = -1
        best_length = 0
        run = -1
        length = 0
        for i in range(first, last + 1):
            free = i < last and is_free(sim.by_pool[i], sim)
            if free and length > 0 and sim.by_pool[i] == sim.by_pool[i - 1] + 1:
                length += 1
                continue
            if length > 0:
                enough = length >= wanted
                best_enough = best_length >= wanted
                if (
                    best < 0
                    or (enough and (not best_enough or length < best_length))
                    or (not enough and not best_enough and length > best_length)
                ):
                    best = run
                    best_length = length
            length = 0
            if free:
                run = i
                length = 1
        for i in range(best, best + min(wanted, best_length)):
            claim(j, sim.by_pool[i], sim)
        wanted -= min(wanted, best_length)


@jit
def release_nodes(j: int, sim: Arrays) -> None:
    """Take all nodes from a job."""
    node = sim.state[j].first_node
    while node >= 0:
        following = sim.node[node].next
        sim.node[node].job = -1
        sim.node[node].next = -1
        node = following
    sim.state[j].first_node = -1


@jit
def note_segments(j: int, sim: Arrays) -> None:
    """Note where a job that just started runs, as runs of node numbers."""
    node = sim.state[j].first_node
    last = -1
    while node >= 0:
        if last >= 0 and sim.segment[last].first - 1 == node:
            sim.segment[last].first = node
            sim.segment[last].nodes += 1
        else:
            last = sim.clock.segments
            sim.clock.segments = last + 1
            sim.segment[last].job = j
            sim.segment[last].start = sim.state[j].start
            sim.segment[last].first = node
            sim.segment[last].nodes = 1
        node = sim.node[node].next


@jit
def forget_segments(j: int, sim: Arrays) -> None:
    """A job that was given nodes never began there."""
    for i in range(sim.clock.segments):
        if sim.segment[i].job == j and sim.segment[i].start == sim.state[j].start:
            sim.segment[i].nodes = 0
