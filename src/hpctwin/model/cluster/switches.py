"""Connection of nodes: switches as a tree, as in Slurm's ``topology.conf``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from hpctwin.model.settings import Settings
from hpctwin.model.text import parse_nodes

IntArray = npt.NDArray[np.int64]


class Switch(Settings):
    """A switch with the nodes, or the switches, that are connected to it.

    Args:
        name: Name of the switch.
        nodes: Node numbers such as ``"0-15,32"``.
        switches: Names of other switches.
    """

    name: str
    nodes: str | None = None
    switches: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.nodes is None) == (not self.switches):
            raise ValueError(f"switch {self.name!r} needs either 'nodes' or 'switches'")
        return self


def check_switches(
    switches: Sequence[Switch], count: int, nodes: Sequence[str] | None = None
) -> None:
    """Check that switches are one or several trees, with each node at one switch.

    Args:
        nodes: Names of the nodes, for messages; by default their numbers.
    """
    if not switches:
        return
    named = range(count) if nodes is None else nodes
    names = [switch.name for switch in switches]
    above: dict[str, str] = {}
    at: dict[int, str] = {}
    for switch in switches:
        if names.count(switch.name) > 1:
            raise ValueError(f"switch {switch.name!r} is defined twice")
        for below in switch.switches:
            if below not in names:
                raise ValueError(
                    f"switch {switch.name!r}: unknown switch {below!r}; known: {', '.join(names)}"
                )
            if below in above:
                raise ValueError(
                    f"switch {below!r} is below {above[below]!r} and {switch.name!r}; a "
                    "switch can have only one parent"
                )
            above[below] = switch.name
        for node in parse_nodes(switch.nodes, count) if switch.nodes is not None else ():
            if node in at:
                raise ValueError(
                    f"node {named[node]} is at switch {at[node]!r} and at "
                    f"{switch.name!r}; a node can be at only one switch"
                )
            at[node] = switch.name
    for name in names:
        way = [name]
        while way[-1] in above:
            way.append(above[way[-1]])
            if way[-1] == name:
                raise ValueError(f"switch {name!r} is below itself: {' < '.join(way)}")
    left = [node for node in range(count) if node not in at]
    if left:
        raise ValueError(f"node {named[left[0]]} is at no switch; assign each node to one switch")


def switch_tree(switches: Sequence[Switch], count: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return switches as numbers, each after all below it.

    Returns:
        For each switch, the one above it, -1 for none, and its height, 0 for a switch with nodes
        [switches]; and for each node its switch [nodes].
    """
    by_name = {switch.name: switch for switch in switches}

    def height(name: str) -> int:
        return 1 + max(map(height, by_name[name].switches)) if by_name[name].switches else 0

    order = sorted(by_name, key=height)
    place = {name: number for number, name in enumerate(order)}
    above, at = np.full(len(order), -1), np.full(count, -1)
    for name in order:
        switch = by_name[name]
        above[[place[below] for below in switch.switches]] = place[name]
        if switch.nodes is not None:
            at[parse_nodes(switch.nodes, count)] = place[name]
    return above, np.array([height(name) for name in order], np.int64), at
