"""Engine arrays where jobs share nodes; rules in docs/reference/rules/shared-nodes.md, "Shared nodes"."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.engine.passes import Pass
from hpctwin.engine.state.layout import AMOUNTS
from hpctwin.engine.state.sim import Sim, records
from hpctwin.model import PER_NODE, Cluster, Workload
from hpctwin.model.demand import tasks_asked, totals_asked
from hpctwin.policies import Policy
from hpctwin.simulation.lowering.gpus import SingleGpus, asks_parts, has_several_types, with_gpus
from hpctwin.simulation.lowering.heterogeneous_jobs import Nodes, sets_of, tasks_in, with_more
from hpctwin.simulation.lowering.workload import MB_PER_GB

__all__ = [
    "amounts_asked",
    "amounts_of_pools",
    "columns_of",
    "counted_nodes",
    "held_amounts",
    "most_promises",
    "shared_facts",
    "shared_known",
    "taken_by",
    "units_of",
]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

ENOUGH = 10**12
"""Amount of a resource that is not modeled; a whole number of GPUs."""

ALONE = 2**40
"""Amount that means exclusive use of a node, equal to `engine.shared.fit.ALL`."""

TYPICAL = 64
"""Number of kinds of jobs that decide which free GPUs of a node count as unusable."""

_UNSTATED = {"cores": 1000}
"""Amounts of a node that no node group states, if they are modeled: a node is at least one core."""

_UNITS = {"cores": 1000, "memory_gb": MB_PER_GB, "gpus": 1000}
_ALONE = AMOUNTS - 1
_GPUS = 2
_MILLI = 1000


def units_of(cluster: Cluster) -> dict[str, int]:
    """Return engine units per user-visible unit, for node amounts in engine order.

    The amount for exclusive use of a node is among them and has an empty name.
    """
    return {**_UNITS, "": 1, **dict.fromkeys(cluster.consumables, _MILLI)}


def columns_of(cluster: Cluster) -> Iterator[tuple[int, str, int]]:
    """Yield column, name and engine units of each amount that has a name."""
    for column, (name, units) in enumerate(units_of(cluster).items()):
        if name:
            yield column, name, units


def shared_known(
    known: Mapping[str, npt.NDArray[Any]],
    workload: Workload,
    cluster: Cluster,
    *,
    single: bool | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return the engine's arrays with requests of tasks and capacities of nodes.

    Args:
        known: The engine's other arrays, with tracked nodes.
        workload: Jobs with the columns of tasks.
        cluster: The cluster.
        single: Whether any job asks for a part of a GPU; by default as in the workload.
    """
    asks, needs = _requests(workload, cluster)
    whole = _whole(cluster)
    several = workload.more_tasks.codes.astype(np.int64)
    grouped = workload.group_by.codes.astype(np.int64)
    kind, first = _kinds(known["job"]["kind"], *asks.values(), *needs.T, several, grouped)
    shape = records("shape", len(first), **{name: values[first] for name, values in asks.items()})
    shape["popularity"] = np.bincount(kind, minlength=len(first))
    shape["charge"] = counted_nodes(workload, cluster)[first]
    shape["more"] = shape["among"] = -1
    shape["of"] = np.arange(len(first))
    shape["parts"] = np.minimum(shape["tasks"], cluster.node_count)
    eligible = known["eligible"][known["job"]["kind"][first]]
    job = known["job"].copy()
    job["kind"] = kind
    needs = needs[first]
    units = units_of(cluster)
    further = [tasks_in(text, units) for text in workload.more_tasks.labels]
    gpus = None
    one_by_one = has_several_types(cluster) or (asks_parts(workload) if single is None else single)
    if one_by_one and any(group.gpus for group in cluster.nodes):
        gpus = SingleGpus.of(cluster)
        whole = np.concatenate([whole, gpus.of_nodes(cluster)], axis=1)
        needs = np.concatenate([needs, np.zeros((len(needs), gpus.count), np.int64)], axis=1)
        further = [[(n, [*row, *[0] * gpus.count]) for n, row in kinds] for kinds in further]
    machine = Nodes(whole, known["pool_of"], gpus)
    fits = _fit(shape, needs, machine, eligible)
    typical = _typical(shape, first)
    if workload.more_tasks.labels or workload.group_by.labels:
        features = _features_of_pools(cluster, known["pool_of"])
        sets = [sets_of(name, features) for name in workload.group_by.labels]
        about = (several[first], further, grouped[first], sets, machine)
        shape, needs, eligible, too_much = with_more(shape, needs, eligible, *about)
        fits[too_much] = False
    job["rejected"] |= ~fits[kind]
    if gpus is not None:
        alone = asks["exclusive"][first][shape["of"]] != 0
        shape, needs, eligible = with_gpus(shape, needs, eligible, alone, gpus)
    return {
        **known,
        "job": job,
        "eligible": eligible,
        "partition": known["partition"][known["job"]["kind"][first]][shape["of"]],
        "shape": shape,
        "needs": needs,
        "whole": whole,
        "typical": typical,
        "type_at": np.array(() if gpus is None else gpus.at, np.int64),
    }


def _features_of_pools(cluster: Cluster, pool_of: IntArray) -> list[tuple[str, ...]]:
    group = np.repeat(np.arange(len(cluster.nodes)), [one.count for one in cluster.nodes])
    first = np.unique(pool_of, return_index=True)[1]
    return [cluster.nodes[number].all_features for number in group[first].tolist()]


def _typical(shape: npt.NDArray[Any], first: IntArray) -> IntArray:
    """Return the most frequent kinds of jobs that share nodes, then by first job."""
    order = np.lexsort((first, -shape["popularity"]))
    found: IntArray = order[shape["exclusive"][order] == 0][:TYPICAL]
    return found


def _requests(workload: Workload, cluster: Cluster) -> tuple[dict[str, IntArray], IntArray]:
    """Return each job's request, and that of one task in engine units, rounded up.

    The second array is [jobs, amounts].
    """
    chunks = workload.chunks
    tasks = chunks["tasks"].astype(np.int64)
    shares = tasks > 0
    most = chunks["tasks_per_node"].astype(np.int64)
    asks = {
        "tasks": np.where(shares, tasks, workload.nodes),
        "nodes": workload.nodes,
        "most": np.where(shares, np.where(most > 0, most, tasks_asked(workload)), 1),
        "exclusive": np.where(shares, chunks["exclusive"].astype(np.int64), 1),
        "shared_with": chunks["shared_with"].astype(np.int64),
        "spread": chunks["spread_job"].astype(np.int64),
    }
    if asks["shared_with"].any():
        # The user and account then belong to the kind of every job.
        asks["user"] = workload.user.codes.astype(np.int64)
        asks["account"] = workload.account.codes.astype(np.int64)
    needs = np.ones((len(workload), len(units_of(cluster))), np.int64)
    for column, name, units in columns_of(cluster):
        asked = _per_task(workload, name) * units
        # The tolerance keeps a number that is whole up to binary rounding from being rounded up.
        needs[:, column] = np.where(shares, np.ceil(asked - 1e-6 * units), 0)
    return asks, needs


def _per_task(workload: Workload, name: str) -> FloatArray:
    """Return how much of an amount a task of each job asks for [jobs]."""
    if name in _UNITS:
        return workload.chunks[f"{name}_per_task"]
    return workload.consumables.get(name, np.zeros(len(workload)))


def _whole(cluster: Cluster) -> IntArray:
    """Return the capacity of each node in engine units, rounded down [nodes, amounts]."""
    rows = []
    for group in cluster.nodes:
        row = [ALONE] * len(units_of(cluster))
        for column, name, units in columns_of(cluster):
            has = group.amount(name)
            stated = any(other.amount(name) is not None for other in cluster.nodes)
            missing = 0 if stated else _UNSTATED.get(name, ENOUGH)
            row[column] = missing if has is None else int(np.floor(has * units + 1e-6 * units))
        rows += [row] * group.count
    return np.array(rows, np.int64)


def _kinds(*columns: IntArray) -> tuple[IntArray, IntArray]:
    """Return each job's kind by its values in all columns, and each kind's first job."""
    rows = np.arange(len(columns[0]))
    kind, count = np.zeros(len(rows), np.int64), 1
    for column in columns:
        place, values = _numbered(column)
        if values > 1:
            # Combine two columns into one number, and renumber to keep it small.
            kind, count = _numbered(kind * values + place)
    first = np.zeros(count, np.int64)
    # Assign in reverse order, so that each kind keeps its first job.
    first[kind[::-1]] = rows[::-1]
    return kind, first


def _numbered(column: IntArray) -> tuple[IntArray, int]:
    """Return the rank of each number among the distinct ones, and how many those are.

    Most columns have few distinct numbers.
    """
    if (column == column[:1]).all():
        return np.zeros(len(column), np.int64), 1
    values = pl.Series(column).unique().sort().to_numpy()
    return np.searchsorted(values, column).astype(np.int64), len(values)


def _fit(
    shape: npt.NDArray[Any], needs: IntArray, machine: Nodes, eligible: Any
) -> npt.NDArray[np.bool_]:
    """Return whether each kind of job fits the whole empty cluster [kinds]."""
    whole, pool = machine.whole, machine.pool_of
    of_pool, nodes = np.unique(pool, return_index=True)[1], np.bincount(pool)
    total, count = np.zeros(len(shape), np.int64), np.zeros(len(shape), np.int64)
    for p, node in enumerate(of_pool):
        room = np.full(len(shape), ENOUGH)
        for c in range(needs.shape[1]):
            asked = needs[:, c] * (c != _ALONE)
            room = np.where(
                asked > 0, np.minimum(room, whole[node, c] // np.maximum(asked, 1)), room
            )
        if (gpus := machine.gpus) is not None:
            asking = np.flatnonzero(needs[:, _GPUS] > 0)
            types = gpus.of_types(needs[asking])
            for asked in np.unique(np.column_stack([needs[asking, _GPUS], types]), axis=0):
                alike = asking[
                    (needs[asking, _GPUS] == asked[0]) & (types == asked[1:]).all(axis=1)
                ]
                left = gpus.single(whole[node : node + 1])
                room[alike] = np.minimum(room[alike], gpus.room(needs[alike[0]], left)[0])
        room = np.minimum(room, shape["most"]) * (eligible[:, p] != 0)
        total += room * nodes[p]
        count += (room > 0) * nodes[p]
    fits: npt.NDArray[np.bool_] = (total >= shape["tasks"]) & (count >= shape["nodes"])
    return fits


def _shares(workload: Workload, cluster: Cluster) -> FloatArray:
    """Return the share of all nodes and of each amount that each job asks for.

    The result is [jobs, 1 + amounts].
    """
    tasks = workload.chunks["tasks"] > 0
    totals, whole = totals_asked(workload, {}), _whole(cluster)
    columns = [np.where(tasks, 0.0, workload.nodes / cluster.node_count)]
    for column, name, units in columns_of(cluster):
        there = float(whole[:, column].sum(dtype=np.float64)) / units
        modelled = name not in _UNITS or there < ENOUGH / units
        asked = np.where(tasks, totals.get(name, 0.0), 0.0)
        columns.append(asked / there if there > 0 and modelled else np.zeros(len(tasks)))
    return np.column_stack(columns)


def counted_nodes(workload: Workload, cluster: Cluster) -> FloatArray:
    """Return the number of nodes each job counts as [jobs].

    A job with tasks counts by the largest of its shares of the cluster.
    """
    if not workload.shares_nodes:
        return workload.nodes.astype(np.float64)
    shares = _shares(workload, cluster)
    counted: FloatArray = shares.max(axis=1) * cluster.node_count
    return counted


def shared_facts(fact: npt.NDArray[Any], workload: Workload, cluster: Cluster) -> npt.NDArray[Any]:
    """Return facts of jobs that are those of `workload.facts_of`, with what tasks ask."""
    tasks = workload.chunks["tasks"] > 0
    totals = totals_asked(workload, {})
    totals["memory_mb"] = totals["memory_gb"] * MB_PER_GB
    for name in PER_NODE:
        fact[name] = np.where(tasks, workload.chunks[f"{name}_per_task"], fact[name])
    for name, total in (("cpu", "cores"), ("memory_mb", "memory_mb")):
        wide = workload.resources.get(name, 0)
        fact[name] = np.where(tasks, totals[total] + wide, fact[name])
    shares = _shares(workload, cluster)
    cluster_wide = [
        workload.resources[name] / max(amount, 1)
        for name, amount in cluster.resources.items()
        if name in workload.resources
    ]
    every = np.column_stack([shares, *cluster_wide])
    fact["dominant"], fact["load"] = every.max(axis=1), every.sum(axis=1)
    return fact


def most_promises(sim: Sim, policy: Policy, found: Pass) -> int:
    """How many promises on nodes there are at most at a time, however many jobs wait.

    Args:
        sim: Simulation with shared nodes.
        policy: The policy.
        found: Its pass.
    """
    if found.model.preempts or policy.power.power_pass.shared is not None:
        return ENOUGH  # a job that waits for jobs it preempted may have a reservation under any backfill
    widest = int(sim["shape"]["parts"].max(initial=0))
    # Each partition adds its own reservations.
    of_partitions = int(np.maximum(sim["partition_fact"]["backfill_depth"], 0).sum())
    reservations = found.most_reservations(policy.numbers(), len(sim["user_limit"]))
    return min(ENOUGH, (reservations + of_partitions) * widest)


def held_amounts(sim: Sim, cluster: Cluster, nodes: IntArray, part: FloatArray | None) -> IntArray:
    """Return what a running job holds of its nodes, in engine units [nodes, amounts].

    Args:
        sim: Simulation with shared nodes.
        cluster: Its cluster.
        nodes: Numbers of the nodes.
        part: Cores, memory (GB), GPUs and consumables on each node [nodes, 3 + consumables]; None
            for the whole nodes. Single GPUs are left at zero; see `gpus.lay_running`.
    """
    whole: IntArray = sim["whole"][nodes]
    if part is None:
        return whole
    held = np.zeros(whole.shape, np.int64)
    held[:, _ALONE] = 1
    for place, (column, _, units) in enumerate(columns_of(cluster)):
        held[:, column] = np.ceil(part[:, place] * units - 1e-6 * units)
    return held


def taken_by(sim: Sim, row: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return the nodes of a started job, with its tasks of each kind on each node."""
    place: dict[int, int] = {}
    first = int(sim["job"]["kind"][row])
    # The job may have started on any of its node sets, so the kinds of all sets get a position.
    while first >= 0:
        kind = first
        for number in itertools.count():
            place[kind] = number
            if (kind := int(sim["shape"]["more"][kind])) < 0:
                break
        first = int(sim["shape"]["among"][first])
    found: dict[int, list[int]] = {}
    part = int(sim["state"]["first_node"][row])
    while part >= 0:
        one = sim["part"][part]
        if int(one["kind"]) in place:  # otherwise the part belongs to a GPU
            tasks = found.setdefault(int(one["node"]), [0] * (max(place.values()) + 1))
            tasks[place[int(one["kind"])]] = int(one["tasks"])
        part = int(one["next"])
    return [(node, tuple(tasks)) for node, tasks in found.items()]


def amounts_of_pools(known: Any) -> dict[str, IntArray]:
    """Return the capacity of a node of each pool, in engine units [pools]."""
    first = np.unique(known["pool_of"], return_index=True)[1]
    return {name: known["whole"][first, column] for column, name in enumerate(_UNITS)}


def amounts_asked(workload: Workload) -> dict[str, IntArray]:
    """Return the total request of each job's tasks or nodes, in engine units [jobs]."""
    totals = totals_asked(workload)
    return {
        name: np.ceil(totals[name] * units - 1e-6 * units).astype(np.int64)
        for name, units in _UNITS.items()
    }
