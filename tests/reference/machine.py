"""The machine: pools of nodes, and who is on which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpctwin.model import Cluster, Partition, to_ms
from hpctwin.model.text import parse_nodes

if TYPE_CHECKING:
    from tests.reference.jobs import Job


@dataclass
class Pool:
    """Nodes of one group under the same maintenance."""

    group: int
    nodes: list[int]
    maintenance: list[tuple[int, int]]  # [start, end)

    def away(self, time: int) -> bool:
        return any(start <= time < end for start, end in self.maintenance)


class Machine:
    """Nodes, pools, partitions, cluster-wide resources; who is on which node."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        group_of = [g for g, group in enumerate(cluster.nodes) for _ in range(group.count)]
        spans = []
        under: list[list[int]] = [[] for _ in group_of]
        for number, reservation in enumerate(cluster.reservations):
            spans.append((to_ms(reservation.start), to_ms(reservation.end)))
            # Read: groups and node numbers given together mean both.
            covered = set(parse_nodes(reservation.nodes or "", len(group_of))
                          if reservation.nodes is not None else ())  # fmt: skip
            names = reservation.groups
            for node, group in enumerate(group_of):
                named = names is not None and cluster.nodes[group].name in names
                everything = names is None and reservation.nodes is None
                if node in covered or named or everything:
                    under[node].append(number)
        pools: dict[tuple[int, tuple[int, ...]], Pool] = {}
        for node, group in enumerate(group_of):  # rising, so pools come by their lowest number
            key = (group, tuple(under[node]))
            if key not in pools:
                pools[key] = Pool(group, [], [spans[number] for number in under[node]])
            pools[key].nodes.append(node)
        self.pools = list(pools.values())
        self.maintenance_ms = spans
        self.partitions = cluster.partitions or (Partition(name="all"),)
        self.resources = dict(cluster.resources)
        self.outages_over = [0] * len(group_of)  # how many outages last on each node
        self.job_on: list[Job | None] = [None] * len(group_of)
        self.back: dict[int, int] = {}  # nodes not on that no job may have yet: when they are on
        self.raises: list[tuple[int, int, str, int]] = []  # more of a resource from start to end

    def partition_of(self, label: str | None) -> int:
        """Index of the partition a job goes to."""
        if not self.cluster.partitions:
            return 0
        for index, partition in enumerate(self.partitions):
            if partition.name == label or (label is None and partition.default):
                return index
        raise ValueError(f"no partition for jobs that name {label!r}")

    def up(self, pool: int) -> list[int]:
        """Numbers of the pool's nodes that have not failed."""
        return [node for node in self.pools[pool].nodes if not self.outages_over[node]]

    def free(self, pool: int) -> list[int]:
        """Numbers of the pool's nodes that have not failed, are on and have no job."""
        return [
            node for node in self.up(pool) if self.job_on[node] is None and node not in self.back
        ]
