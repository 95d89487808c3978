"""GPUs of shared nodes one by one, where jobs ask for parts of them, from the section "Shared nodes"."""

from __future__ import annotations

from fractions import Fraction

from hpctwin.model import Cluster
from tests.reference.shared_requests import Amounts, Request, Tasks

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


def single_gpus(cluster: Cluster, asked: list[Request]) -> int:
    """How many GPUs a node has at most, if they are counted one by one; else 0."""
    parts = any(kind.each[GPUS] % 1 for request in asked for kind in request.kinds)
    return max(-int(-(group.gpus or 0) // 1) for group in cluster.nodes) if parts else 0


def gpus_of(cluster: Cluster, group: int, most: int) -> Amounts:
    """What each GPU of an empty node has."""
    there = Fraction(cluster.nodes[group].gpus or 0)
    return tuple(max(Fraction(0), min(Fraction(1), there - gpu)) for gpu in range(most))


def laid(asked: Fraction, tasks: int, left: Amounts) -> Amounts | None:
    """What tasks take of each GPU: parts of the tightest, then whole ones; None if they cannot."""
    free = list(left)
    sizes = [asked % 1] * tasks if asked % 1 else []
    for size in sizes:
        fits = [gpu for gpu, amount in enumerate(free) if amount >= size]
        if not fits:
            return None
        free[min(fits, key=lambda gpu: free[gpu])] -= size
    for _ in range(tasks * int(asked)):
        if 1 not in free:
            return None
        free[free.index(Fraction(1))] = Fraction(0)
    return tuple(a - b for a, b in zip(left, free, strict=True))


def room_on(asked: Fraction, left: Amounts) -> int:
    """For how many tasks there is room."""
    tasks = 0
    while laid(asked, tasks + 1, left) is not None:
        tasks += 1
    return tasks


def less(left: Amounts, tasks: Tasks) -> Amounts:
    """What tasks that lie on a node leave of each GPU."""
    if not isinstance(tasks, Lying) or not tasks.gpus:
        return left
    return tuple(a - b for a, b in zip(left, tasks.gpus, strict=True))
