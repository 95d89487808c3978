"""The engine's arrays that depend on the cluster alone, not on its jobs."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpctwin.engine.state.array_allocation import speed_columns
from hpctwin.engine.state.layout import AMOUNTS, LAYOUT, NEVER
from hpctwin.engine.state.sim import records
from hpctwin.model import NEVER_MS, PER_NODE, Cluster, Partition, to_ms
from hpctwin.model.cluster.switches import switch_tree
from hpctwin.model.text import parse_nodes

__all__ = [
    "BLOCK_MS",
    "Kinds",
    "Machine",
    "changes_of",
    "drawn_outages",
    "machine_of",
    "pool_of_nodes",
    "recorded_outages",
]


IntArray = npt.NDArray[np.int64]


class Kinds(NamedTuple):
    """Kinds of jobs on a cluster (K of them).

    Args:
        eligible: 1 for the pools that a kind may use [K, pools].
        partition: Partition number of each kind [K].
        nodes: Number of nodes that each kind may use [K].
    """

    eligible: npt.NDArray[np.int8]
    partition: IntArray
    nodes: IntArray


@dataclass(frozen=True, eq=False)
class Machine:
    """A cluster in the engine's form; its arrays are read-only.

    Args:
        partitions: The cluster's partitions, or one of all nodes if it has none.
        group_of_pool: Node group of each pool [pools].
        pool_nodes: Number of nodes of each pool [pools].
        pool_of_node: Pool of each node; a pool's nodes share one group and the same maintenance
            windows [nodes].
        capacity: Amount of each cluster-wide resource [resources].
        amount: Nodes of each pool, then ``capacity``.
        nodes_from, nodes_to, walltime_to: Smallest and largest number of nodes of a job, and its
            longest walltime in ms, in each partition [partitions].
        kinds: Cache of the kinds of jobs, used when the same kinds are looked up again.
        known: Arrays of `engine.state.layout.Known` that depend on the cluster alone.
        by_node: Arrays that exist only where nodes have identity.
    """

    partitions: Sequence[Partition]
    group_of_pool: IntArray
    pool_nodes: IntArray
    pool_of_node: IntArray
    capacity: IntArray
    amount: IntArray
    nodes_from: IntArray
    nodes_to: IntArray
    walltime_to: IntArray
    kinds: dict[Any, Kinds]
    known: dict[str, npt.NDArray[Any]]
    by_node: dict[str, npt.NDArray[Any]]


_MADE: dict[int, tuple[weakref.ref[Cluster], Machine]] = {}


def machine_of(cluster: Cluster) -> Machine:
    """Return a cluster in the engine's form, made once per cluster.

    The cache pays because a twin asks for it at each decision.
    """
    number = id(cluster)
    found = _MADE.get(number)
    # While this cluster is alive, no other object has its id.
    if found is None or found[0]() is not cluster:
        kept = weakref.ref(cluster, lambda _: _MADE.pop(number, None))
        found = _MADE[number] = kept, _made(cluster)
    return found[1]


def _made(cluster: Cluster) -> Machine:
    group_of_node, pool_of_node = _group_and_pool_of_nodes(cluster)
    group_of_pool = group_of_node[np.unique(pool_of_node, return_index=True)[1]]
    pool_nodes = np.bincount(pool_of_node).astype(np.int64)
    partitions = cluster.partitions or _one_partition()
    windows = _windows(cluster, pool_of_node, group_of_node, pool_nodes)
    places = np.concatenate([[0], np.cumsum(pool_nodes)])
    capacity = np.array(list(cluster.resources.values()), np.int64)
    if cluster.switches or not cluster.is_connected:
        above, height, switch_of = switch_tree(cluster.switches, cluster.node_count)
    else:
        from hpctwin.network.blocks import tree_of_blocks

        above, height, switch_of = tree_of_blocks(cluster.blocks(), cluster.node_count)
    return Machine(
        partitions,
        group_of_pool,
        pool_nodes,
        pool_of_node,
        capacity,
        amount=np.concatenate([pool_nodes, capacity]),
        nodes_from=np.array([p.min_nodes for p in partitions]),
        nodes_to=np.array([p.max_nodes or np.iinfo(np.int64).max for p in partitions]),
        walltime_to=np.array(
            [NEVER if p.max_walltime is None else to_ms(p.max_walltime) for p in partitions]
        ),
        kinds={},
        known={
            "pool": records(
                "pool",
                len(pool_nodes),
                first=places[:-1],
                last=places[1:],
                group=[list(group_of_pool).index(g) for g in group_of_pool],
                **speed_columns(cluster.nodes[g].speed_at_first for g in group_of_pool),
            ),
            "pool_fact": _pool_facts(cluster, group_of_pool),
            "user_limit": np.array([p.max_jobs_per_user or 0 for p in partitions], np.int64),
            "partition_fact": records(
                "partition_fact",
                len(partitions),
                priority=[p.priority for p in partitions],
                backfill_depth=[
                    -1 if p.backfill_depth is None else p.backfill_depth for p in partitions
                ],
            ),
            "window": windows,
            "change": changes_of(windows),
            "reset": np.array([to_ms(time) for time in cluster.fairshare.resets], np.int64),
            "sleep": records("sleep", 0),
            "shape": records("shape", 0),
            "needs": np.zeros((0, AMOUNTS), np.int64),
            "whole": np.zeros((0, AMOUNTS), np.int64),
            "typical": np.zeros(0, np.int64),
            "type_at": np.zeros(0, np.int64),
            "switch": records("switch", 0),
            "switch_of": np.zeros(0, np.int64),
        },
        by_node={
            "by_pool": np.argsort(pool_of_node, kind="stable"),
            "pool_of": pool_of_node,
            "switch": records("switch", len(above), above=above, height=height),
            "switch_of": switch_of,
        },
    )


def pool_of_nodes(cluster: Cluster) -> IntArray:
    """Return the pool of each node [nodes]."""
    return machine_of(cluster).pool_of_node


def _group_and_pool_of_nodes(cluster: Cluster) -> tuple[IntArray, IntArray]:
    counts = [group.count for group in cluster.nodes]
    group = np.repeat(np.arange(len(counts)), counts)
    if not cluster.reservations:
        return group, group
    marks = [group]
    # All occurrences of a recurring reservation have the same nodes.
    of = {(one.groups, one.nodes): one for one in cluster.reservations}
    marks += [_nodes_of(reservation, cluster, group) for reservation in of.values()]
    distinct, pool = np.unique(np.stack(marks), axis=1, return_inverse=True)
    first = np.full(distinct.shape[1], len(pool))
    np.minimum.at(first, pool.ravel(), np.arange(len(pool)))
    # Number the pools by their first node.
    place = np.argsort(np.argsort(first))
    return group, place[pool.ravel()]


def _nodes_of(reservation: Any, cluster: Cluster, group: IntArray) -> npt.NDArray[np.int64]:
    """Return 1 for each node that a reservation covers, else 0 [nodes]."""
    if reservation.groups is None and reservation.nodes is None:
        return np.ones(len(group), np.int64)
    covered = np.zeros(len(group), np.int64)
    names = [g.name for g in cluster.nodes]
    for name in reservation.groups or ():
        covered[group == names.index(name)] = 1
    if reservation.nodes is not None:
        covered[parse_nodes(reservation.nodes, len(group))] = 1
    return covered


def _windows(
    cluster: Cluster, pool: IntArray, group: IntArray, amount: IntArray
) -> npt.NDArray[Any]:
    """Return the maintenance windows by start: start and end (ms), pool, node count."""
    rows = [
        (to_ms(reservation.start), to_ms(reservation.end), int(p), int(amount[p]))
        for reservation in cluster.reservations
        for p in np.unique(pool[_nodes_of(reservation, cluster, group) == 1])
    ]
    return np.array(sorted(rows), LAYOUT["window"][0])


def changes_of(windows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return starts and ends of windows in the order applied: starts first at a tie."""
    size = len(windows)
    both = {"pool": windows["pool"], "amount": windows["amount"]}
    away = records("change", size, time=windows["start"], sign=-1, **both)
    back = records("change", size, time=windows["end"], sign=1, **both)
    table = np.concatenate([away, back])
    return table[np.lexsort((table["pool"], table["sign"], table["time"]))]


@cache
def _one_partition() -> Sequence[Partition]:
    """Return the partition of a cluster without partitions.

    It is made once, because building a settings object takes as long as a small table.
    """
    return (Partition(name="all", default=True),)


def _pool_facts(cluster: Cluster, group_of_pool: IntArray) -> npt.NDArray[Any]:
    groups = [cluster.nodes[g] for g in group_of_pool]
    known = [group for group in groups if cluster.has_power]
    return records(
        "pool_fact",
        len(groups),
        group=group_of_pool,
        **{name: [getattr(group, name) or 0.0 for group in groups] for name in PER_NODE},
        idle_w=[group.initial.idle for group in known] or 0.0,
        active_w=[group.initial.power_w for group in known] or 0.0,
        weight=[group.weight for group in groups],
    )


BLOCK_MS = 30 * 86_400_000
"""Length of a block of drawn failures, in ms; each block has its own generator."""

Outages = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def recorded_outages(cluster: Cluster, begin_ms: int = 0) -> Outages:
    """Return node, start and end (ms) of the recorded failures.

    Args:
        cluster: The cluster.
        begin_ms: Time in ms; anything before it is cut off.
    """
    outages = cluster.failures.outages
    start = np.array([to_ms(o.start) for o in outages], np.int64)
    length = np.array([max(1, to_ms(o.duration)) for o in outages], np.int64)
    node, end = np.array([o.node for o in outages], np.int64), start + length
    last = end > begin_ms
    return node[last], np.maximum(start, begin_ms)[last], end[last]


def drawn_outages(cluster: Cluster, block: int, begin_ms: int = 0) -> tuple[Outages, int]:
    """Return node, start and end (ms) of a block's drawn failures, and its end.

    Failures of all nodes together are a Poisson process, repair times are exponential. A failure of
    a node that is already down extends its absence if it would last longer.

    Args:
        cluster: The cluster.
        block: Number of the block, from 0.
        begin_ms: Start of block 0, in ms: the first submission. A slice of a trace thus has the
            same failures as the same jobs shifted to time zero.
    """
    failures = cluster.failures
    if failures.mtbf is None or failures.mttr is None:
        empty = np.zeros(0, np.int64)
        return (empty, empty, empty), NEVER_MS
    rng = np.random.Generator(np.random.PCG64([failures.seed, block]))
    number = rng.poisson(cluster.node_count * BLOCK_MS / (failures.mtbf * 1000))
    start = np.sort(rng.integers(block * BLOCK_MS, (block + 1) * BLOCK_MS, number)) + begin_ms
    node = rng.integers(0, cluster.node_count, number).astype(np.int64)
    length = np.maximum(1, np.rint(rng.exponential(failures.mttr * 1000, number))).astype(np.int64)
    horizon = begin_ms + (block + 1) * BLOCK_MS
    return (node, start.astype(np.int64), start + length), horizon
