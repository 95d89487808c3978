"""Nodes as people name them: hostlists, partitions, node groups, racks and switches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hpctwin.errors import FormatError, UnknownNameError
from hpctwin.model import Cluster
from hpctwin.model.text import MOST, compact, expand, parse_nodes, split_list

__all__ = ["node_sets", "select_nodes"]

_LENGTH = 200


def select_nodes(
    lists: Iterable[str], names: Sequence[str], sets: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """Return the nodes that lists name, each once, in the order of the cluster.

    Args:
        lists: Texts such as ``n[1-4,7] partition=gpu``.
        names: All nodes of the cluster.
        sets: Nodes of each set, from `node_sets`.

    Raises:
        UnknownNameError: There is no such node or set.
        FormatError: A text cannot be read, or the lists name more than a million nodes.
    """
    known, total = set(names), 0
    chosen: set[str] = set()
    for part in (part for text in lists for word in text.split() for part in split_list(word)):
        if "=" in part and part not in sets:
            raise UnknownNameError("set of nodes", part, sets)
        found = sets[part] if part in sets else [part] if part in known else expand(part)
        unknown = next((name for name in found if name not in known), None)
        if unknown is not None:
            nodes = compact(names)
            short = nodes if len(nodes) <= _LENGTH else f"{nodes[:_LENGTH]}…"
            raise UnknownNameError("node", unknown, [short, *list(sets)[:10]])
        total += len(found)
        if total > MOST:
            raise FormatError(f"the node lists name more than {MOST:,} nodes")
        chosen.update(found)
    return tuple(name for name in names if name in chosen)


def node_sets(machine: Cluster, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the nodes of ``partition=NAME``, ``group=NAME``, ``rack=NUMBER``, ``switch=NAME``.

    Args:
        machine: The cluster.
        names: Names of its nodes, by number.
    """
    sets: dict[str, list[str]] = {}
    groups: dict[str, list[str]] = {}
    first = 0
    for group in machine.nodes:
        nodes = groups[group.name] = list(names[first : first + group.count])
        first += group.count
        if group.racks is not None:
            racks = group.racks
            each = racks.chassis_per_rack * racks.nodes_per_chassis
            there = sorted(set(range(racks.cdus * racks.racks_per_cdu)) - set(racks.missing))
            for i, name in enumerate(nodes):
                sets.setdefault(f"rack={there[i // each]}", []).append(name)
    for partition in machine.partitions:
        of = groups if partition.groups is None else partition.groups
        sets[f"partition={partition.name}"] = [name for one in of for name in groups[one]]
    sets |= {f"group={name}": nodes for name, nodes in groups.items()}
    below = {switch.name: switch for switch in machine.switches}

    def under(name: str) -> list[str]:
        switch = below[name]
        if switch.nodes is None:
            return [node for one in switch.switches for node in under(one)]
        return [names[i] for i in parse_nodes(switch.nodes, machine.node_count)]

    return sets | {f"switch={name}": under(name) for name in below}
