"""Nodes of jobs by the switches of a cluster."""

from __future__ import annotations

from hpctwin.model import Cluster


def blocks_of(cluster: Cluster) -> tuple[dict[str, set[int]], dict[str, int]]:
    """The nodes below each switch, and how high it is."""
    switches = {switch.name: switch for switch in cluster.switches}

    def below(name: str) -> set[int]:
        found = set[int]().union(*map(below, switches[name].switches))
        for part in (switches[name].nodes or "").split(","):
            if part:
                first, _, last = part.partition("-")
                found |= set(range(int(first), int(last or first) + 1))
        return found

    def height(name: str) -> int:
        return 1 + max(map(height, switches[name].switches)) if switches[name].switches else 0

    return {name: below(name) for name in switches}, {name: height(name) for name in switches}


def by_blocks(cluster: Cluster, fits: dict[int, int], tasks: int, wanted: int) -> list[int]:
    """Nodes in the order in which a job of so many tasks, on so many nodes at least, gets them.

    Args:
        cluster: the machine.
        fits: for how many tasks each node has room; all of these above 0.
        tasks: how many there are.
        wanted: so many nodes at least.
    """
    below, height = blocks_of(cluster)
    left, top, found = dict(fits), set(fits), list[int]()

    def room(name: str) -> int:
        return sum(left.get(node, 0) for node in below[name])

    while tasks > 0:
        inside = [name for name in below if below[name] & set(fits) <= top]
        suffice = [
            name
            for name in inside
            if room(name) >= tasks and len(below[name] & set(left)) >= wanted
        ]
        if suffice:
            top = below[min(suffice, key=lambda name: (height[name], room(name)))] & set(fits)
        blocks = [name for name in below if not height[name] and below[name] & set(left) & top]
        for node in sorted(below[max(blocks, key=room)] & set(left)):
            if tasks > 0:
                found.append(node)
                tasks -= min(left[node], tasks - max(0, wanted - 1))
                wanted -= 1
            del left[node]
    return found


def below_few_switches(cluster: Cluster, free: list[int], wanted: int) -> list[int]:
    """Free nodes in the order in which a job of so many nodes gets them: few switches."""
    below, height = blocks_of(cluster)
    enough = [name for name in below if len(below[name] & set(free)) >= wanted]
    inside = set(free)
    if enough:
        inside &= below[min(enough, key=lambda name: (height[name], len(below[name] & inside)))]
    blocks = [name for name in below if not height[name] and below[name] & inside]
    blocks.sort(key=lambda name: -len(below[name] & inside))
    return [node for name in blocks for node in sorted(below[name] & inside)]


def in_gaps(cluster: Cluster, free: list[int], wanted: int) -> list[int]:
    """Free nodes in the order in which a job gets them that does not communicate."""
    below, height = blocks_of(cluster)
    left, found = set(free), list[int]()
    while wanted > 0:
        blocks = [name for name in below if not height[name] and below[name] & left]
        enough = [name for name in blocks if len(below[name] & left) >= wanted]
        block = min(enough, key=lambda name: len(below[name] & left)) if enough else blocks[-1]
        found += sorted(below[block] & left)
        wanted -= len(below[block] & left)
        left -= below[block]
    return found


def whole_nodes_by_blocks(cluster: Cluster, free: list[int], wanted: int) -> list[int]:
    """Free nodes in the order in which a job gets them, whole blocks first."""
    return by_blocks(cluster, dict.fromkeys(free, 1), wanted, 0)


ON_WHOLE_NODES = {
    "whole_blocks": whole_nodes_by_blocks,
    "fewest_switches": below_few_switches,
    "communication_aware": in_gaps,
}
"""Order of a pool's free nodes, by placement."""
