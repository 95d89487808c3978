"""GPUs of shared nodes one by one, where jobs ask for parts of them, from the section "Shared nodes"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hpctwin.model import Cluster
from tests.reference.shared_requests import (
    NAMES,
    Amount,
    Amounts,
    Request,
    Tasks,
    amount_of,
    consumables,
)

GPUS = 2


class Lying(Tasks):
    """Tasks of a job on a node, of each kind, and what they have of each GPU of it.

    Args:
        tasks: of each kind.
        gpus: of each GPU.
    """

    gpus: Amounts

    def __new__(cls, tasks: Tasks, gpus: Amounts) -> Lying:
        made = super().__new__(cls, tasks)
        made.gpus = gpus
        return made


class Types(NamedTuple):
    """Of which type each GPU of a node is: amounts are asked by type in columns behind the common ones.

    Args:
        columns: those of all types.
        of_gpus: that of each GPU; 0: none.
    """

    columns: tuple[int, ...]
    of_gpus: tuple[int, ...]

    def asked(self, each: Amounts) -> Iterator[tuple[Amount, list[int]]]:
        """How much a task asks, and of which GPUs; once for each type, or for all together."""
        if any(each[column] for column in self.columns):
            for column in self.columns:
                yield each[column], [g for g, of in enumerate(self.of_gpus) if of == column]
        else:
            yield each[GPUS], list(range(len(self.of_gpus)))


def single_gpus(cluster: Cluster, asked: list[Request]) -> int:
    """How many GPUs a node has at most, if they are counted one by one; else 0."""
    parts = any(kind.each[GPUS] % 1 for request in asked for kind in request.kinds)
    most = max(-int(-(group.gpus or 0) // 1) for group in cluster.nodes)
    several = any(
        len(set(types_of(cluster, g, 99).of_gpus) - {-1}) > 1 for g in range(len(cluster.nodes))
    )
    return most if parts or several else 0


def gpus_of(cluster: Cluster, group: int, most: int) -> Amounts:
    """What each GPU of an empty node has."""
    there = amount_of(cluster.nodes[group].gpus or 0)
    return tuple(max(0, min(1, there - gpu)) for gpu in range(most))


def types_of(cluster: Cluster, group: int, most: int) -> Types:
    """Of which type each GPU of a node is; -1 of those that are not there."""
    names = consumables(cluster)
    columns = {n: len(NAMES) + place for place, n in enumerate(names) if n.startswith("gpu/")}
    of_gpus: list[int] = []
    for name, column in columns.items():
        of_gpus += [column] * int(cluster.nodes[group].consumables.get(name, 0))
    rest = -int(-(cluster.nodes[group].gpus or 0) // 1) - len(of_gpus)
    of_gpus += [0] * rest
    return Types(tuple(columns.values()), (*of_gpus, *[-1] * (most - len(of_gpus))))


def laid(each: Amounts, tasks: int, left: Amounts, types: Types) -> Amounts | None:
    """What tasks take of each GPU: parts of the tightest, then whole ones; None if they cannot."""
    free = list(left)
    for asked, gpus in types.asked(each):
        sizes = [asked % 1] * tasks if asked % 1 else []
        for size in sizes:
            fits = [gpu for gpu in gpus if free[gpu] >= size]
            if not fits:
                return None
            free[min(fits, key=lambda gpu: free[gpu])] -= size
        for _ in range(tasks * int(asked)):
            whole = [gpu for gpu in gpus if free[gpu] == 1]
            if not whole:
                return None
            free[whole[0]] = 0
    return tuple(a - b for a, b in zip(left, free, strict=True))


def room_on(each: Amounts, left: Amounts, types: Types) -> int:
    """For how many tasks there is room."""
    tasks = 0
    while laid(each, tasks + 1, left, types) is not None:
        tasks += 1
    return tasks


def untold(each: Amounts, tasks: Tasks, types: Types) -> Amounts:
    """What tasks on a node hold of each type of GPUs of which they did not say the type, in their columns."""
    found = [0] * len(each)
    if isinstance(tasks, Lying) and tasks.gpus:
        for column in types.columns:
            held = [a for a, of in zip(tasks.gpus, types.of_gpus, strict=True) if of == column]
            found[column] = sum(held) - each[column]
    return tuple(found)


def less(left: Amounts, tasks: Tasks) -> Amounts:
    """What tasks that lie on a node leave of each GPU."""
    if not isinstance(tasks, Lying) or not tasks.gpus:
        return left
    return tuple(a - b for a, b in zip(left, tasks.gpus, strict=True))
