"""The orders in which placements go through shared nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import groupby
from typing import Any

from hpctwin.model import MS_PER_S
from tests.reference.blocks import blocks_of, by_blocks
from tests.reference.jobs import Job, NodeView
from tests.reference.shared_gpus import GPUS, Types, laid, room_on
from tests.reference.shared_requests import Amount, Amounts

TYPICAL = 64


def weight(room: Any, nodes: list[int]) -> list[int]:
    return sorted(nodes, key=lambda node: group_of(room, node).weight)


def round_robin(room: Any, nodes: list[int]) -> list[int]:
    turn = room.simulation.turn
    return [node for node in nodes if node >= turn] + [node for node in nodes if node < turn]


def runs_of(nodes: list[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for node in nodes:
        if runs and runs[-1][-1] == node - 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    return runs


def tightest_run(room: Any, nodes: list[int]) -> list[int]:
    request = room.request
    tasks, wanted = request.tasks, request.nodes
    asked = request.each[GPUS]
    gres = any(request.each[GPUS:])

    def near(node: int) -> Amount:
        if room.gpus:
            some = [g for ask, gpus in room.types[node].asked(request.each) if ask for g in gpus]
            free = sum(room.gpus[node][g] for g in some)
        else:
            free = room.least[node][GPUS]
        return min(free, asked if request.tasks == request.nodes else asked * request.tasks)

    def cores_of(node: int) -> Amount:
        return room.f[node] * request.each[0] if gres else room.least[node][0]

    def cores(run: list[int]) -> Amount:
        return sum(cores_of(node) for node in run)

    def suffices(run: list[int]) -> bool:
        return sum(room.f[node] for node in run) >= tasks and len(run) >= wanted

    def better(run: list[int], best: list[int]) -> bool:
        if near(run[0]) != near(best[0]):
            return near(run[0]) > near(best[0])
        if suffices(run):
            return not suffices(best) or cores(run) < cores(best)
        return cores(run) > cores(best)

    runs, found = list[list[int]](), list[int]()
    for run in runs_of(nodes):
        runs += [list(some) for _, some in groupby(run, near)]
    while tasks > 0:
        best = runs[0]
        for run in runs[1:]:
            best = run if better(run, best) else best
        alone = [node for node in best if room.f[node] >= tasks]
        if wanted <= 1 and alone:
            return [*found, min(alone, key=cores_of)]
        for node in best:
            found.append(node)
            tasks -= min(room.f[node], tasks - max(0, wanted - 1))
            wanted -= 1
        runs.remove(best)
    return found


def contiguous(room: Any, nodes: list[int]) -> list[int]:
    runs = runs_of(nodes)
    stretches = [
        run[first:last]
        for run in runs
        for first in range(len(run))
        for last in range(first + 1, len(run) + 1)
        if holds(room, run[first:last])
    ]
    if stretches:
        return min(stretches, key=lambda stretch: (len(stretch), stretch[0]))
    runs.sort(key=lambda run: -sum(room.f[node] for node in run))
    return [node for run in runs for node in run]


def fewest_switches(room: Any, nodes: list[int]) -> list[int]:
    switches = {switch.name: switch for switch in room.simulation.machine.cluster.switches}

    def below(name: str) -> list[int]:
        own = switches[name]
        if own.nodes is None:
            return sorted(node for other in own.switches for node in below(other))
        wanted = set()
        for part in own.nodes.split(","):
            first, _, last = part.partition("-")
            wanted |= set(range(int(first), int(last or first) + 1))
        return [node for node in nodes if node in wanted]

    def height(name: str) -> int:
        return 1 + max(map(height, switches[name].switches)) if switches[name].switches else 0

    def has(name: str) -> int:
        return sum(room.f[node] for node in below(name))

    enough = [name for name in switches if holds(room, below(name))]
    inside = set(nodes)
    if enough:
        inside = set(below(min(enough, key=lambda name: (height(name), has(name)))))
    leaves = [name for name in switches if not height(name) and inside & set(below(name))]
    leaves.sort(key=lambda name: -has(name))
    return [node for name in leaves for node in below(name)]


def scored(room: Any, nodes: list[int]) -> list[int]:
    simulation = room.simulation

    def score(node: int) -> float:
        cores, memory, gpus = (float(x) if x < 10**9 else 0.0 for x in room.least[node][:3])
        group = group_of(room, node)
        pool = simulation.pool_of[node]
        seen = NodeView(
            number=float(node),
            group=float(simulation.machine.pools[pool].group),
            cores=cores,
            gpus=gpus,
            memory_gb=memory,
            speed=group.speed,
            idle_w=0.0,
            active_w=0.0,
            wakes=0.0,
            free=float(
                sum(not any(simulation.jobs_on(other)) for other in simulation.machine.up(pool))
            ),
        )
        return float(simulation.place(simulation.now / MS_PER_S, room.job.view, seen))

    return sorted(nodes, key=score)


def whole_blocks(room: Any, nodes: list[int]) -> list[int]:
    fits = {node: room.f[node] for node in nodes}
    cluster = room.simulation.machine.cluster
    return by_blocks(cluster, fits, room.request.tasks, room.request.nodes)


STEP, WORD = 0x9E3779B97F4A7C15, 1 << 64


def mixed(state: int) -> int:
    """A random number of a state: splitmix64."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % WORD
    return state ^ (state >> 31)


def random(room: Any, nodes: list[int]) -> list[int]:
    left, order = sorted(room.simulation.pool_of), list[int]()
    state = mixed((room.simulation.seed + STEP * room.simulation.begun) % WORD)
    while left:
        state = (state + STEP) % WORD
        place = mixed(state) % (WORD >> 1) % len(left)
        order.append(left[place])
        left[place] = left[0]
        left = left[1:]
    return [node for node in order if node in nodes]


def communication_aware(room: Any, nodes: list[int]) -> list[int]:
    if room.job.view.communication >= 0.1:
        return whole_blocks(room, nodes)
    below, height = blocks_of(room.simulation.machine.cluster)
    blocks = {name: [n for n in nodes if n in below[name]] for name in below if not height[name]}
    tasks, wanted, found = room.request.tasks, room.request.nodes, list[int]()
    while tasks > 0:
        some = {name: sum(room.f[n] for n in left) for name, left in blocks.items() if left}
        enough = [n for n in some if some[n] >= tasks and len(blocks[n]) >= wanted]
        block = min(enough, key=lambda name: some[name]) if enough else list(some)[-1]
        for node in blocks.pop(block):
            found.append(node)
            tasks -= min(room.f[node], max(0, tasks - max(0, wanted - 1)))
            wanted -= 1
    return found


ORDERS: dict[str, Callable[[Any, list[int]], list[int]]] = {
    "weight": weight,
    "round_robin": round_robin,
    "contiguous": contiguous,
    "tightest_run": tightest_run,
    "fewest_switches": fewest_switches,
    "whole_blocks": whole_blocks,
    "communication_aware": communication_aware,
    "random": random,
    "scored": scored,
}

ON_SHARED_ONLY = ("weight", "round_robin", "tightest_run", "fragmentation")
"""Placements that have no meaning of their own where nodes are only whole."""


def group_of(room: Any, node: int) -> Any:
    machine = room.simulation.machine
    return machine.cluster.nodes[machine.pools[room.simulation.pool_of[node]].group]


def holds(room: Any, nodes: list[int]) -> bool:
    """Whether the job fits these nodes."""
    request = room.request
    return sum(room.f[n] for n in nodes) >= request.tasks and len(nodes) >= request.nodes


def fragmentation_rise(room: Any, node: int, has: int) -> tuple[Amount, Amounts]:
    """By how much what typical jobs cannot use of a node's GPUs grows with one more task; what it takes."""
    each = room.request.each
    before = [x - has * ask for x, ask in zip(room.least[node], each, strict=True)]
    after = [x - ask for x, ask in zip(before, each, strict=True)]
    if not room.gpus:
        return useless(room, node, after, ()) - useless(room, node, before, ()), ()
    taken = room.on_gpus.get(node, (0,) * len(room.gpus[node]))
    gpus = tuple(a - b for a, b in zip(room.gpus[node], taken, strict=True))
    found = []
    for takes in ways(each, gpus, room.types[node]):
        left = tuple(a - b for a, b in zip(gpus, takes, strict=True))
        found.append((useless(room, node, after, left), takes))
    least, takes = min(found, key=lambda way: way[0])
    return least - useless(room, node, before, gpus), takes


def ways(each: Amounts, gpus: Amounts, types: Types) -> list[Amounts]:
    """What one more task might take of each GPU of a node."""
    if not 0 < each[GPUS] < 1:
        takes = laid(each, 1, gpus, types)
        return [] if takes is None else [takes]
    return [
        tuple(asked if gpu == other else 0 for other in range(len(gpus)))
        for asked, some in types.asked(each)
        for gpu in some
        if 0 < asked <= gpus[gpu]
    ]


def choose_gpus(room: Any, node: int, has: int) -> None:
    """One more task gets the GPUs of a node on which it strands least."""
    if room.gpus:
        _, takes = fragmentation_rise(room, node, has)
        before = room.on_gpus.get(node, (0,) * len(takes))
        room.on_gpus[node] = tuple(a + b for a, b in zip(before, takes, strict=True))


def useless(room: Any, node: int, left: list[Amount], single: Amounts) -> Amount:
    if left[GPUS] > 10**9:
        return 0  # not modelled
    gpus = sum(single) if room.gpus else left[GPUS]
    total: Amount = 0
    for job, count in typical(room.simulation):
        request = room.simulation.asked[job]
        asked = request.each[GPUS]
        lost = gpus
        if (
            asked > 0
            and room.simulation.pool_of[node] in job.pools
            and all(x >= ask for x, ask in zip(left, request.each, strict=True))
            and (not room.gpus or room_on(request.each, single, room.types[node]) > 0)
        ):
            too_little = list[Amount]()
            if room.gpus:
                asks = room.types[node].asked(request.each)
                of_use = [gpu for some, gpus_of_it in asks if some for gpu in gpus_of_it]
                too_little = [
                    x for gpu, x in enumerate(single) if gpu not in of_use or x < min(asked, 1)
                ]
            lost = sum(too_little) if room.gpus else gpus % 1
        total += count * lost
    return total


def typical(simulation: Any) -> list[tuple[Job, int]]:
    """A job of each of the kinds of jobs with tasks that are not exclusive, and how many are of it."""
    first: dict[Any, Job] = {}
    counts: Counter[Any] = Counter()
    for job in simulation.jobs:
        request = simulation.asked[job]
        if not request.exclusive:
            kind = (request, tuple(job.pools))
            first.setdefault(kind, job)
            counts[kind] += 1
    assert len(first) <= TYPICAL
    return [(first[kind], count) for kind, count in counts.items()]
