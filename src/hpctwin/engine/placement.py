"""Which nodes a job gets, where nodes have identity."""

from __future__ import annotations

from numba import int64, types

from hpctwin.engine.abi import NodeView
from hpctwin.engine.jit import Kernel, jit
from hpctwin.engine.layout import (
    ASLEEP_NODES,
    AWAKE_NODES,
    CONTIGUOUS,
    FREE_NODES,
    GIVEN,
    LOWEST,
    NEVER,
    RANDOM,
    SCORED,
    SOONEST,
    SPREAD,
    ZERO,
    Arrays,
)
from hpctwin.engine.nodes import first_in, is_free, touch
from hpctwin.engine.order import decayed, fair_of, seen
from hpctwin.engine.plan import active_from
from hpctwin.engine.rows import SIM, call_with_job, ranked_by


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
    touch(node, sim)


@jit
def place(j: int, sim: Arrays) -> None:
    """Choose the nodes of a starting job: ``sim.take`` from each pool, and note them down."""
    call_with_job(sim.hooks.place_nodes, j, sim)


def place_nodes(j: int, sim: Arrays) -> None:
    """As `place`; compiled once for all passes, where nodes have identity."""
    placement = sim.rules.placement
    if sim.rules.preferred == GIVEN:
        return
    if placement == SCORED:
        _claim_ranked(j, sim)
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
            _claim_from(FREE_NODES, j, p, wanted, sim)
        elif sim.rules.preferred == SOONEST:
            _claim_soonest(j, p, wanted, sim)
        else:
            _claim_least_draw(j, p, wanted, sim)


@jit
def _claim_from(chosen: int, j: int, p: int, wanted: int, sim: Arrays) -> int:
    """Claim the lowest nodes of a pool that are in a set; how many are still wanted."""
    place = sim.pool[p].first
    while wanted > 0:
        place = first_in(chosen, place, sim.pool[p].last, sim)
        if place < 0:
            break
        claim(j, sim.by_pool[place], sim)
        wanted -= 1
        place += 1
    return wanted


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
def _soonest_off(p: int, sim: Arrays) -> tuple[int, int]:
    """When the first free node of a pool that is not on can be; and the depth all such sleep in, or -1."""
    best = NEVER
    among = -1
    for depth in range(sim.rules.depths):
        if sim.tally[p, ASLEEP_NODES + depth] > 0:
            ready = sim.clock.now + sim.sleep[p * sim.rules.depths + depth].on_time
            if ready <= best:
                among = depth if ready < best else -1
                best = ready
    for i in range(sim.clock.switching):
        node = sim.switching[i].job
        if sim.pool_of[node] == p and is_free(node, sim):
            ready = active_from(node, sim)
            if ready <= best:
                among = -1
                best = ready
    return best, among


@jit
def _claim_soonest(j: int, p: int, wanted: int, sim: Arrays) -> None:
    """The nodes active soonest, ties by number."""
    wanted = _claim_from(AWAKE_NODES, j, p, wanted, sim)
    while wanted > 0:
        ready, depth = _soonest_off(p, sim)
        if depth >= 0:
            wanted = _claim_from(ASLEEP_NODES + depth, j, p, wanted, sim)
            continue
        for i in range(sim.pool[p].first, sim.pool[p].last):
            node = sim.by_pool[i]
            if wanted > 0 and is_free(node, sim) and active_from(node, sim) == ready:
                claim(j, node, sim)
                wanted -= 1


@jit
def _claim_least_draw(j: int, p: int, wanted: int, sim: Arrays) -> None:
    """As SPARS does it: sleeping nodes before idle ones, if these are too few."""
    now = sim.clock.now
    pool = sim.pool[p]
    idle = 0
    for i in range(pool.first, pool.last):
        node = sim.by_pool[i]
        if is_free(node, sim) and active_from(node, sim) <= now:
            idle += 1
    sleepers_first = idle < wanted
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


PLACE_NODES = Kernel(place_nodes, types.void(int64, SIM))


@jit
def place_by_score(j: int, sim: Arrays) -> None:
    """Divide a job's nodes over the pools as its placement scores the free ones, given ``sim.low``."""
    call_with_job(sim.hooks.place_by_score, j, sim)


def divide_by_score(j: int, sim: Arrays) -> None:
    """As `place_by_score`; compiled once for all passes."""
    kind = sim.job[j].kind
    for p in range(sim.rules.pools):
        sim.take[p] = 0
        if sim.eligible[kind, p] == 0:
            sim.low[p] = 0
    left = sim.job[j].nodes
    n = rank_free(j, sim)
    while left > 0:
        p = sim.pool_of[pop_ranked(n, sim)]
        n -= 1
        if sim.low[p] > 0:
            sim.low[p] -= 1
            sim.take[p] += 1
            left -= 1


PLACE_BY_SCORE = Kernel(divide_by_score, types.void(int64, SIM))


@jit
def _claim_ranked(j: int, sim: Arrays) -> None:
    """The nodes with the lowest scores, as many of each pool as ``sim.take`` says."""
    left = 0
    for p in range(sim.rules.pools):
        sim.low[p] = sim.take[p]
        left += sim.take[p]
    n = rank_free(j, sim)
    while left > 0:
        node = pop_ranked(n, sim)
        n -= 1
        p = sim.pool_of[node]
        if sim.low[p] > 0:
            sim.low[p] -= 1
            left -= 1
            claim(j, node, sim)


@jit
def rank_free(j: int, sim: Arrays) -> int:
    """Heap the free nodes of all pools of which ``sim.low`` allows any, by score; how many."""
    factor = 1.0
    current = 0.0
    if sim.rules.fairshare == 1:
        factor, current = fair_of(sim.job[j].share, decayed(len(sim.promised), sim), sim)
    job = seen(j, sim.clock.now, factor, current, sim)
    now = sim.clock.now
    n = 0
    for p in range(sim.rules.pools):
        if sim.low[p] <= 0:
            continue
        fact = sim.pool_fact[p]
        for i in range(sim.pool[p].first, sim.pool[p].last):
            node = sim.by_pool[i]
            if not is_free(node, sim):
                continue
            wakes = 0
            if sim.rules.depths > 0:
                wakes = active_from(node, sim) - now
            own = ranked_by(
                sim.hooks.place,
                now / 1000.0,
                job,
                NodeView(
                    float(node),
                    fact.group,
                    fact.cores,
                    fact.gpus,
                    fact.memory_gb,
                    sim.pool[p].speed,
                    fact.idle_w,
                    fact.active_w,
                    wakes / 1000.0,
                    float(sim.stock[p].free),
                ),
            )
            if own != own:
                sim.clock.bad_job = j
                sim.clock.bad_node = node
            sim.ranked[n].score = own
            sim.ranked[n].node = node
            n += 1
    for i in range(n // 2 - 1, -1, -1):
        _sink(n, i, sim)
    return n


@jit
def pop_ranked(n: int, sim: Arrays) -> int:
    """Take the node with the lowest score off the heap of ``n`` nodes; of equals the first number."""
    first = sim.ranked[0].node
    sim.ranked[0].score = sim.ranked[n - 1].score
    sim.ranked[0].node = sim.ranked[n - 1].node
    _sink(n - 1, ZERO, sim)
    return first


@jit
def _comes_first(a: int, b: int, sim: Arrays) -> bool:
    one = sim.ranked[a]
    other = sim.ranked[b]
    return one.score < other.score or (one.score == other.score and one.node < other.node)


@jit
def _sink(n: int, i: int, sim: Arrays) -> None:
    """Sink an entry of the heap of ``n`` nodes to its place."""
    while True:
        least = i
        for child in range(2 * i + 1, min(2 * i + 3, n)):
            if _comes_first(child, least, sim):
                least = child
        if least == i:
            return
        score = sim.ranked[i].score
        node = sim.ranked[i].node
        sim.ranked[i].score = sim.ranked[least].score
        sim.ranked[i].node = sim.ranked[least].node
        sim.ranked[least].score = score
        sim.ranked[least].node = node
        i = least


@jit
def release_nodes(j: int, sim: Arrays) -> None:
    """Take all nodes from a job."""
    node = sim.state[j].first_node
    while node >= 0:
        following = sim.node[node].next
        sim.node[node].job = -1
        sim.node[node].next = -1
        touch(node, sim)
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
