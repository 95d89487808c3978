"""Blocks of a network: nodes that are close to each other, by switches as a tree."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import accumulate
from operator import mul
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.network.platform import Platform
from hpctwin.network.topologies import Dragonfly, FatTree

__all__ = ["Blocks", "block_sizes", "blocks_of_platform", "tree_of_blocks"]

IntArray = npt.NDArray[np.int64]


class Blocks(NamedTuple):
    """Nodes of one topology.

    Args:
        nodes: Numbers of the nodes, in the order of their places.
        places: Their places in the topology.
        sizes: Places of a block, by level; a block of each level is part of one of the next.
    """

    nodes: IntArray
    places: IntArray
    sizes: tuple[int, ...]


def block_sizes(below: Iterable[int]) -> tuple[int, ...]:
    """Return the places below a switch of each level, from the number of parts of each."""
    return tuple(accumulate(below, mul))


def blocks_of_platform(platform: Platform) -> list[Blocks]:
    """Return the blocks of the nodes of a platform, by its zones with hosts.

    Nodes of a zone that is neither a fat tree nor a dragonfly are one block.
    """
    points = platform.host_point[platform.hosts_of("compute_node")]
    zones, places = platform.point_zone[points], platform.point_rank[points]
    found = []
    for number in np.unique(zones).tolist():
        zone = platform.zones[number]
        sizes: tuple[int, ...] = ()
        if isinstance(zone, FatTree):
            sizes = block_sizes(zone.children)
        elif isinstance(zone, Dragonfly):
            sizes = block_sizes(reversed(zone.sizes))
        nodes = (zones == number).nonzero()[0]
        found.append(Blocks(nodes, places[nodes], sizes))
    return found


def tree_of_blocks(blocks: Iterable[Blocks], count: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return blocks as switches, as `hpctwin.model.cluster.switches.switch_tree` does.

    Args:
        blocks: Blocks of all nodes.
        count: Number of nodes.
    """
    above: list[tuple[int, int, int]] = []  # height, own number, that of the switch above
    at = np.full(count, -1)
    made = 0
    for nodes, places, sizes in blocks:
        levels = [*sizes[:-1], math.inf]
        upper = np.full(len(nodes), -1)
        for height in range(len(levels) - 1, -1, -1):
            own = (places // levels[height]).astype(np.int64)
            _, first, which = np.unique(own, return_index=True, return_inverse=True)
            above += [(height, made + i, int(upper[row])) for i, row in enumerate(first.tolist())]
            upper = made + which
            made += len(first)
        at[nodes] = upper
    above.sort()
    place = np.empty(made + 1, np.int64)
    place[[number for _, number, _ in above]] = np.arange(made)
    place[-1] = -1
    heights = np.array([height for height, _, _ in above], np.int64)
    return place[[switch for _, _, switch in above]], heights, place[at]
