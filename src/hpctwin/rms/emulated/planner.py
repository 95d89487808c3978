"""What an emulated cluster asks of its own scheduling: whoever makes the cluster brings it along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from hpctwin.model import Cluster
from hpctwin.rms.placement.node_capacity import Taken
from hpctwin.rms.records.records import JobRecord, NodePower, NodeRecord, NodeReservation

__all__ = ["Plan", "Planner"]


class Plan(NamedTuple):
    """The jobs that start now, and the nodes that are switched.

    Args:
        starts: id of each, in the order in which they start, and how many nodes it takes of each pool.
        pool: the pool of each node.
        taken: where nodes are shared or have power states, by id, the nodes that each takes and how many
            tasks it has there.
        switched: numbers of nodes, and the power states that they come into now.
        again_s: when nodes are to be switched next if nothing else happens; None for never.
    """

    starts: Sequence[tuple[str, Sequence[int]]]
    pool: Sequence[int]
    taken: Mapping[str, Taken] = {}
    switched: Sequence[tuple[int, NodePower]] = ()
    again_s: float | None = None


class Planner(Protocol):
    """Says which jobs start now, and which nodes are switched."""

    @property
    def soonest(self) -> bool:
        """Whether jobs get the nodes that can be on first."""

    @property
    def by_plan(self) -> bool:
        """Whether nodes are woken for the jobs that this planner will start."""

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
