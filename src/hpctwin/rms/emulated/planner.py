"""What an emulated cluster asks of its own scheduling: whoever makes the cluster brings it along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from hpctwin.model import Cluster
from hpctwin.rms.records import JobRecord, NodeRecord, NodeReservation
from hpctwin.rms.room import Taken

__all__ = ["Plan", "Planner"]


class Plan(NamedTuple):
    """The jobs that start now.

    Args:
        starts: id of each, in the order in which they start, and how many nodes it takes of each pool.
        pool: the pool of each node.
        taken: where nodes are shared, by id, the nodes that each takes and how many tasks it has there.
    """

    starts: Sequence[tuple[str, Sequence[int]]]
    pool: Sequence[int]
    taken: Mapping[str, Taken] = {}


class Planner(Protocol):
    """Says which jobs start now."""

    def __call__(
        self,
        machine: Cluster,
        jobs: Sequence[JobRecord],
        nodes: Sequence[NodeRecord],
        reservations: Sequence[NodeReservation],
        now_s: float,
    ) -> Plan:
        """The jobs that start now.

        Args:
            machine: node groups, partitions and resources.
            jobs: those that run, and those that may start now if they fit.
            nodes: in the order of their numbers.
            reservations: those that have not ended.
            now_s: the present by the cluster's clock.
        """
