"""Which free nodes of a pool a job gets: one kernel for each way.

A kernel is compiled when a simulation needs it. Each claims ``sim.take`` nodes of each pool for the
job.
"""

from __future__ import annotations

from hpctwin.engine.capacity.plan import active_from
from hpctwin.engine.compile.jit import jit
from hpctwin.engine.containers.node_sets import first_in, is_free
from hpctwin.engine.containers.switch_blocks import (
    add_room,
    forget_room,
    gap,
    lowest,
    next_block,
    roomiest,
    take_off,
)
from hpctwin.engine.placement.job_nodes import claim
from hpctwin.engine.state.layout import (
    ASLEEP_NODES,
    AWAKE_NODES,
    FREE_NODES,
    NEVER,
    ONE,
    ZERO,
    Arrays,
)

__all__ = ["COMMUNICATES", "STEP", "draw_below", "mixed"]

COMMUNICATES = 0.1
"""Share of its time alone from which on a job counts as one that communicates."""


STEP = -7046029254386353131
"""Difference of two successive states of a random generator (splitmix64).

Source:
    Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators.
"""


@jit
def mixed(z: int) -> int:
    """Return a random number for a state of a generator."""
    # Masks make the right shifts of signed integers logical ones.
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


@jit
def draw_below(bound: int, state: int) -> int:
    """Return a random integer from 0 to below ``bound``, for a state of a generator."""
    return (mixed(state) & 0x7FFFFFFFFFFFFFFF) % bound


@jit
def random_below(bound: int, sim: Arrays) -> int:
    """Return an integer below ``bound``, from the simulation's generator."""
    sim.clock.random += STEP
    return draw_below(bound, sim.clock.random)


@jit
def _claim_from(chosen: int, j: int, p: int, wanted: int, sim: Arrays) -> int:
    """Claim the lowest nodes of a pool in a set; return how many are still missing."""
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
def _soonest_off(p: int, sim: Arrays) -> tuple[int, int]:
    """Return when the first free node of a pool that is not on can be on.

    Returns:
        The time, ms, and the sleep depth of all nodes that can be on then; -1 if they differ.
    """
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
    """Claim the nodes that are active soonest; ties go by number."""
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
    """Claim nodes as SPARS does: sleeping before idle nodes, if these are too few."""
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
    # Among idle nodes, the one that has been idle longest comes first. A node freed now is still
    # booked as computing.
    if ready <= now:
        return now if sim.node[node].power != 0 else sim.node[node].since
    return -NEVER if sleepers_first else ready


@jit
def _free_in(p: int, sim: Arrays) -> int:
    free = 0
    for i in range(sim.pool[p].first, sim.pool[p].last):
        if is_free(sim.by_pool[i], sim):
            free += 1
    return free


@jit
def _claim_evenly(j: int, p: int, wanted: int, sim: Arrays) -> None:
    free = _free_in(p, sim)
    seen = 0
    taken = 0
    for i in range(sim.pool[p].first, sim.pool[p].last):
        node = sim.by_pool[i]
        if not is_free(node, sim):
            continue
        if taken < wanted and seen == taken * free // wanted:
            claim(j, node, sim)
            taken += 1
        seen += 1


@jit
def _claim_any(j: int, p: int, wanted: int, sim: Arrays) -> None:
    # Selection sampling (Knuth, TAOCP 3.4.2 S): each set of nodes is equally likely.
    left = _free_in(p, sim)
    for i in range(sim.pool[p].first, sim.pool[p].last):
        node = sim.by_pool[i]
        if not is_free(node, sim):
            continue
        if random_below(left, sim) < wanted:
            claim(j, node, sim)
            wanted -= 1
        left -= 1


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
def _count_free(p: int, sim: Arrays) -> None:
    """Count the free nodes of a pool below all switches."""
    forget_room(sim)
    for i in range(sim.pool[p].first, sim.pool[p].last):
        if is_free(sim.by_pool[i], sim):
            add_room(sim.by_pool[i], ONE, sim)


@jit
def _claim_block(block: int, j: int, p: int, wanted: int, sim: Arrays) -> int:
    """Claim free nodes of a pool in a block; return how many are still missing."""
    take_off(block, sim)
    for i in range(sim.pool[p].first, sim.pool[p].last):
        node = sim.by_pool[i]
        if wanted > 0 and sim.switch_of[node] == block and is_free(node, sim):
            claim(j, node, sim)
            wanted -= 1
    return wanted


@jit
def _claim_blocks(j: int, p: int, wanted: int, sim: Arrays) -> None:
    _count_free(p, sim)
    top = -1
    while wanted > 0:
        block, top = next_block(wanted, ZERO, top, sim)
        wanted = _claim_block(block, j, p, wanted, sim)


@jit
def _claim_below(j: int, p: int, wanted: int, sim: Arrays) -> None:
    """Claim nodes below the lowest switch that has enough, the emptiest block first."""
    _count_free(p, sim)
    top = lowest(wanted, ZERO, -ONE, sim)
    while wanted > 0:
        wanted = _claim_block(roomiest(top, sim), j, p, wanted, sim)


@jit
def _claim_gaps(j: int, p: int, wanted: int, sim: Arrays) -> None:
    """Claim nodes of the fullest block that fits, else of the last blocks."""
    _count_free(p, sim)
    while wanted > 0:
        wanted = _claim_block(gap(wanted, ZERO, sim), j, p, wanted, sim)


def place_lowest(j: int, sim: Arrays) -> None:
    """Claim the free nodes with the lowest numbers."""
    for p in range(sim.rules.pools):
        if sim.take[p] > 0:
            _claim_from(FREE_NODES, j, p, sim.take[p], sim)


def place_soonest(j: int, sim: Arrays) -> None:
    """Claim the nodes that are active soonest; ties go by number."""
    for p in range(sim.rules.pools):
        if sim.take[p] > 0:
            _claim_soonest(j, p, sim.take[p], sim)


def place_least_draw(j: int, sim: Arrays) -> None:
    """Claim nodes as SPARS does: sleeping before idle nodes, if these are too few."""
    for p in range(sim.rules.pools):
        if sim.take[p] > 0:
            _claim_least_draw(j, p, sim.take[p], sim)


def place_contiguous(j: int, sim: Arrays) -> None:
    """Claim the shortest sufficient run of consecutive free nodes."""
    for p in range(sim.rules.pools):
        if sim.take[p] > 0:
            _claim_runs(j, p, sim.take[p], sim)


def place_whole_blocks(j: int, sim: Arrays) -> None:
    """Claim nodes on as few blocks as possible."""
    for p in range(sim.rules.pools):
        if sim.take[p] > 0:
            _claim_blocks(j, p, sim.take[p], sim)


def place_fewest_switches(j: int, sim: Arrays) -> None:
    """Claim nodes below the lowest switch that fits, on few blocks."""
    for p in range(sim.rules.pools):
        if sim.take[p] > 0:
            _claim_below(j, p, sim.take[p], sim)


def place_by_communication(j: int, sim: Arrays) -> None:
    """Claim whole blocks for jobs that communicate, and gaps for others."""
    for p in range(sim.rules.pools):
        if sim.take[p] == 0:
            continue
        if sim.fact[j].communication >= COMMUNICATES:
            _claim_blocks(j, p, sim.take[p], sim)
        else:
            _claim_gaps(j, p, sim.take[p], sim)


def place_evenly(j: int, sim: Arrays) -> None:
    """Claim nodes spread evenly over the free ones."""
    for p in range(sim.rules.pools):
        if sim.take[p] > 0:
            _claim_evenly(j, p, sim.take[p], sim)


def place_anywhere(j: int, sim: Arrays) -> None:
    """Claim random nodes, drawn with the seed."""
    for p in range(sim.rules.pools):
        if sim.take[p] > 0:
            _claim_any(j, p, sim.take[p], sim)
