"""Which nodes a job gets, where nodes have identity."""

from __future__ import annotations

from hpctwin.engine.jit import jit
from hpctwin.engine.layout import (
    CONTIGUOUS,
    FIRST_NODE,
    GIVEN,
    LEAST_DRAW,
    NEVER,
    NODE_BOOT,
    NODE_DOWN,
    NODE_ID,
    NODE_JOB,
    NODE_NEXT,
    NODE_POWER,
    NODE_READY,
    NODE_SINCE,
    NOW,
    RANDOM,
    RNG,
    SEGMENT_FIRST,
    SEGMENT_JOB,
    SEGMENT_NODES,
    SEGMENT_START,
    SEGMENTS,
    SOONEST,
    SPREAD,
    START,
    Machine,
    Sim,
    Work,
)


@jit()
def is_free(node: int, sim: Sim) -> bool:
    """Whether a node is up and nobody has it."""
    return sim.node[NODE_JOB, node] < 0 and sim.node[NODE_DOWN, node] == 0


@jit()
def draw(bound: int, sim: Sim) -> int:
    """A whole number below ``bound``, from the simulation's own generator (splitmix64)."""
    # The same constants as in Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators.
    state = sim.count[RNG] + -7046029254386353131
    sim.count[RNG] = state
    z = state
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    z = z ^ ((z >> 31) & 0x1FFFFFFFF)
    return (z & 0x7FFFFFFFFFFFFFFF) % bound


@jit()
def claim(j: int, node: int, sim: Sim) -> None:
    """Give a node to a job."""
    sim.node[NODE_JOB, node] = j
    sim.node[NODE_NEXT, node] = sim.number[FIRST_NODE, j]
    sim.number[FIRST_NODE, j] = node


@jit()
def place(j: int, placement: int, machine: Machine, sim: Sim, work: Work) -> None:
    """Choose the nodes of a starting job: ``work.take`` from each pool, and note them down."""
    for p in range(machine.speed.shape[0]):
        wanted = work.take[p]
        if wanted == 0:
            continue
        if placement == CONTIGUOUS:
            _claim_runs(j, p, wanted, machine, sim)
        elif placement == SPREAD or placement == RANDOM:
            _claim_some(j, p, wanted, placement, machine, sim)
        elif placement == SOONEST or placement == LEAST_DRAW:
            _claim_powered(j, p, wanted, placement, machine, sim)
        elif placement != GIVEN:
            _claim_lowest(j, p, wanted, machine, sim)


@jit()
def _claim_lowest(j: int, p: int, wanted: int, machine: Machine, sim: Sim) -> None:
    i = machine.pool_first[p]
    while wanted > 0:
        node = machine.node[NODE_ID, i]
        if is_free(node, sim):
            claim(j, node, sim)
            wanted -= 1
        i += 1


@jit()
def active_from(node: int, now: int, sim: Sim) -> int:
    """When a node is active, at the earliest."""
    return max(now, sim.node[NODE_READY, node]) + sim.node[NODE_BOOT, node]


@jit()
def nodes_ready(j: int, now: int, sim: Sim) -> int:
    """When all nodes of a job are active; now where nodes have no power states."""
    ready = now
    if sim.node.shape[0] > NODE_READY:
        node = sim.number[FIRST_NODE, j]
        while node >= 0:
            ready = max(ready, active_from(node, now, sim))
            node = sim.node[NODE_NEXT, node]
    return ready


@jit()
def _claim_powered(j: int, p: int, wanted: int, placement: int, machine: Machine, sim: Sim) -> None:
    """The nodes active soonest; or, as SPARS does it, sleeping ones before idle ones."""
    now = sim.count[NOW]
    idle = 0
    for i in range(machine.pool_first[p], machine.pool_first[p + 1]):
        node = machine.node[NODE_ID, i]
        if is_free(node, sim) and active_from(node, now, sim) <= now:
            idle += 1
    sleepers_first = placement == LEAST_DRAW and idle < wanted
    while wanted > 0:
        best = NEVER
        for i in range(machine.pool_first[p], machine.pool_first[p + 1]):
            node = machine.node[NODE_ID, i]
            if is_free(node, sim):
                best = min(best, _rank(node, now, placement, sleepers_first, sim))
        for i in range(machine.pool_first[p], machine.pool_first[p + 1]):
            node = machine.node[NODE_ID, i]
            if wanted > 0 and is_free(node, sim):
                if _rank(node, now, placement, sleepers_first, sim) == best:
                    claim(j, node, sim)
                    wanted -= 1


@jit()
def _rank(node: int, now: int, placement: int, sleepers_first: bool, sim: Sim) -> int:
    ready = active_from(node, now, sim)
    if placement == SOONEST:
        return ready
    # Among idle nodes the one that has been idle longest; who is freed now is still booked as computing.
    if ready <= now:
        return now if sim.node[NODE_POWER, node] != 0 else sim.node[NODE_SINCE, node]
    return -NEVER if sleepers_first else ready


@jit()
def _claim_some(j: int, p: int, wanted: int, placement: int, machine: Machine, sim: Sim) -> None:
    free = 0
    for i in range(machine.pool_first[p], machine.pool_first[p + 1]):
        if is_free(machine.node[NODE_ID, i], sim):
            free += 1
    seen = 0
    taken = 0
    for i in range(machine.pool_first[p], machine.pool_first[p + 1]):
        node = machine.node[NODE_ID, i]
        if not is_free(node, sim):
            continue
        if placement == SPREAD:
            chosen = taken < wanted and seen == taken * free // wanted
        else:
            # Selection sampling (Knuth, TAOCP 3.4.2 S): each set of nodes is equally likely.
            chosen = draw(free - seen, sim) < wanted - taken
        if chosen:
            claim(j, node, sim)
            taken += 1
        seen += 1


@jit()
def _claim_runs(j: int, p: int, wanted: int, machine: Machine, sim: Sim) -> None:
    while wanted > 0:
        best = -1
        best_length = 0
        run = -1
        length = 0
        last = machine.pool_first[p + 1]
        for i in range(machine.pool_first[p], last + 1):
            free = i < last and is_free(machine.node[NODE_ID, i], sim)
            if free and length > 0 and machine.node[NODE_ID, i] == machine.node[NODE_ID, i - 1] + 1:
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
            claim(j, machine.node[NODE_ID, i], sim)
        wanted -= min(wanted, best_length)


@jit()
def release_nodes(j: int, sim: Sim) -> None:
    """Take all nodes from a job."""
    node = sim.number[FIRST_NODE, j]
    while node >= 0:
        following = sim.node[NODE_NEXT, node]
        sim.node[NODE_JOB, node] = -1
        sim.node[NODE_NEXT, node] = -1
        node = following
    sim.number[FIRST_NODE, j] = -1


@jit()
def note_segments(j: int, sim: Sim) -> None:
    """Note where a job that just started runs, as runs of node numbers."""
    node = sim.number[FIRST_NODE, j]
    last = -1
    while node >= 0:
        if last >= 0 and sim.segment[SEGMENT_FIRST, last] - 1 == node:
            sim.segment[SEGMENT_FIRST, last] = node
            sim.segment[SEGMENT_NODES, last] += 1
        else:
            last = sim.count[SEGMENTS]
            sim.count[SEGMENTS] = last + 1
            sim.segment[SEGMENT_JOB, last] = j
            sim.segment[SEGMENT_START, last] = sim.time[START, j]
            sim.segment[SEGMENT_FIRST, last] = node
            sim.segment[SEGMENT_NODES, last] = 1
        node = sim.node[NODE_NEXT, node]
