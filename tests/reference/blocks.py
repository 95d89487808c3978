"""The blocks that a job lies on, with ``whole_blocks``."""

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
