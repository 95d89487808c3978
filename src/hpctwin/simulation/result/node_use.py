"""Use of shared nodes over time, and their free amounts that no job can use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.errors import ConfigError
from hpctwin.model import Cluster, Workload
from hpctwin.model.requests.chunks import read_more_tasks
from hpctwin.model.requests.features import has_features
from hpctwin.simulation.lowering.gpus import ONE_GPU, SingleGpus

__all__ = ["fragmentation", "node_use"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

AMOUNTS = ("cores", "memory_gb", "gpus")
TYPICAL = 64
"""Number of kinds of jobs; the placement ``fragmentation`` uses the same."""

_SLACK = 1e-9


def node_use(
    cluster: Cluster, placements: pl.DataFrame, steps: int = 200, end_s: float | None = None
) -> pl.DataFrame:
    """Return the mean share of each amount that is held on each node, per time step.

    Args:
        cluster: The cluster.
        placements: Table ``placements`` of a result.
        steps: Number of equal steps, 1 or more.
        end_s: End of the last step; by default the end of the last job.

    Returns:
        ``node``, ``time_s`` (begin of the step), and ``cores``, ``memory_gb``, ``gpus`` and
        consumables from 0 to 1, null if a node has none; by node and time.

    Raises:
        ConfigError: There is no step.
    """
    edges = _edges(placements, steps, end_s)
    start, end = _span(placements, edges[-1])
    node = placements["node"].to_numpy()
    columns = {}
    for name, has in _amounts(cluster).items():
        held = placements[name].fill_null(0.0).to_numpy()
        below = [
            np.bincount(node, held * (np.clip(edge, start, end) - start), minlength=len(has))
            for edge in edges
        ]
        used = np.diff(np.array(below), axis=0).T / np.diff(edges)
        columns[name] = (used / np.where(has > 0, has, np.nan)[:, None]).ravel()
    return pl.DataFrame(
        {
            "node": np.repeat(np.arange(cluster.node_count), steps),
            "time_s": np.tile(edges[:-1], cluster.node_count),
            **{name: pl.Series(values, nan_to_null=True) for name, values in columns.items()},
        }
    )


@dataclass(frozen=True)
class _Kinds:
    """Kinds of requests for one node: amounts of a task, and its possible nodes.

    Args:
        of: Kind of each job, or of the first of its tasks [jobs].
        further: Job and kind of each further kind of a job's tasks [further, 2].
        asks: Requested amounts [kinds, amounts].
        empty: Whether the node must be empty [kinds].
        nodes: Whether the task may run on each node [kinds, nodes].
        jobs: Number of jobs of each kind [kinds].
    """

    of: npt.NDArray[np.int64]
    further: npt.NDArray[np.int64]
    asks: FloatArray
    empty: BoolArray
    nodes: BoolArray
    jobs: npt.NDArray[np.int64]

    def fit(
        self,
        which: npt.NDArray[np.int64],
        free: FloatArray,
        single: _Single | None,
        idle: BoolArray,
    ) -> BoolArray:
        """Return whether a task of each kind fits each node [kinds, nodes].

        Args:
            which: Kinds.
            free: Free amounts of each node [nodes, amounts].
            single: Free amounts of each GPU, if GPUs are counted one by one.
            idle: Whether each node is empty [nodes].
        """
        room = self.nodes[which] & (idle | ~self.empty[which][:, None])
        for column in range(self.asks.shape[1]):
            room &= free[:, column] + _SLACK >= self.asks[which, column][:, None]
        if single is not None:
            for row, asked in enumerate(self.asks[which]):
                room[row] &= single.has(asked)
        return room


def fragmentation(
    workload: Workload,
    cluster: Cluster,
    jobs: pl.DataFrame,
    placements: pl.DataFrame,
    steps: int = 200,
    gpu_shares: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return free amounts of shared nodes that cannot be used, over time.

    The table is taken at the middle of equal time steps. ``unusable_…`` is free on nodes that no
    task of any pending job fits; it is null while no job is pending. ``stranded_gpus`` is free on
    nodes that no task with GPUs of any job of the workload fits.

    ``fragmented_gpus`` is the mean, over the workload's jobs, of the free GPUs that a task could
    not use (Weng et al., *Beware of Fragmentation*, ATC 2023). If the task does not fit a node or
    requests no GPU, these are all free GPUs of the node. Otherwise they are the GPUs with less left
    than it requests, or less than a whole one if it requests more. The mean is over the 64 most
    frequent kinds of jobs that share nodes.

    Args:
        workload: The jobs.
        cluster: The cluster; nodes that are down or in maintenance count as free.
        jobs: Table ``jobs`` of a result.
        placements: Amounts that jobs held on nodes.
        steps: Number of steps, 1 or more.
        gpu_shares: Shares of GPUs that jobs held, if GPUs are counted one by one.

    Returns:
        ``time_s``, ``waiting`` (jobs), ``free_…`` and ``unusable_…`` of cores and of GPUs,
        ``stranded_gpus`` and ``fragmented_gpus``.

    Raises:
        ConfigError: There is no step.
    """
    edges = _edges(placements, steps, None)
    times = (edges[1:] + edges[:-1]) / 2
    has = np.array(list(_amounts(cluster).values())).T
    kinds = _kinds(workload, cluster)
    rejected = (jobs["state"] == "rejected").to_numpy()
    eligible = jobs["eligible_s"].fill_null(np.inf).to_numpy()
    begun = jobs["start_s"].fill_null(np.inf).to_numpy()
    left = np.minimum(begun, jobs["end_s"].fill_null(np.inf).to_numpy())
    start, end = _span(placements, edges[-1] + 1.0)
    node = placements["node"].to_numpy()
    names = _amounts(cluster)
    held = np.array([placements[name].fill_null(0.0).to_numpy() for name in names]).T
    asks_gpus = np.flatnonzero(kinds.asks[:, 2] > 0)
    typical = np.argsort(-kinds.jobs, kind="stable")
    typical = typical[~kinds.empty[typical]][:TYPICAL]
    rows = []
    for time in times.tolist():
        here = (start <= time) & (time < end)
        free, idle = has.copy(), np.ones(len(has), bool)
        np.subtract.at(free, node[here], held[here])
        free, idle[node[here]] = np.maximum(free, 0.0), False
        single = _single(cluster, gpu_shares, time, free)
        wait = (eligible <= time) & (time < left) & ~rejected
        others = kinds.further[wait[kinds.further[:, 0]], 1]
        some = np.unique(np.concatenate([kinds.of[wait], others]))
        useless = ~kinds.fit(some, free, single, idle).any(axis=0)
        stranded = ~kinds.fit(asks_gpus, free, single, idle).any(axis=0)
        row: dict[str, Any] = {"time_s": time, "waiting": int(wait.sum())}
        for name, column in (("cores", 0), ("gpus", 2)):
            row[f"free_{name}"] = float(free[:, column].sum())
            row[f"unusable_{name}"] = float(free[useless, column].sum()) if wait.any() else None
        row["stranded_gpus"] = float(free[stranded, 2].sum())
        row["fragmented_gpus"] = _fragmented(kinds, typical, free, single, idle)
        rows.append(row)
    # Explicit types: while no job is pending, the values do not show the type of a column.
    types = {name: pl.Int64 if name == "waiting" else pl.Float64 for name in rows[0]}
    return pl.DataFrame(rows, schema=types)


@dataclass(frozen=True)
class _Single:
    """GPUs one by one.

    Args:
        gpus: Columns of GPUs.
        free: Free share of each GPU [nodes, columns].
    """

    gpus: SingleGpus
    free: FloatArray

    def _needs(self, asked: FloatArray) -> npt.NDArray[np.int64]:
        milli = np.ceil(asked * ONE_GPU - 1e-3).astype(np.int64)
        return np.concatenate([milli, np.zeros(self.gpus.count, np.int64)])

    def has(self, asked: FloatArray) -> BoolArray:
        """Return whether a task with the requested amounts fits each node [nodes]."""
        needs = self._needs(asked)
        if not needs[2]:
            return np.ones(len(self.free), bool)
        return self.gpus.room(needs, np.rint(self.free * ONE_GPU).astype(np.int64)) > 0

    def lost(self, asked: FloatArray) -> FloatArray:
        """Return the free share of GPUs that a task cannot use [nodes].

        These GPUs are of another type, or have too little left.
        """
        of_use = (self.free + _SLACK >= min(asked[2], 1.0)) & self.gpus.suits(self._needs(asked))
        found: FloatArray = np.where(of_use, 0.0, self.free).sum(axis=1)
        return found


def _single(
    cluster: Cluster, gpu_shares: pl.DataFrame | None, time: float, free: FloatArray
) -> _Single | None:
    """Return the free share of each GPU at a time, if GPUs are counted one by one."""
    if gpu_shares is None:
        return None
    gpus = SingleGpus.of(cluster)
    single = gpus.of_nodes(cluster) / ONE_GPU
    column = np.argsort(single == 0, axis=1, kind="stable")  # column of each number
    here = gpu_shares.filter(
        (pl.col("start_s") <= time) & (pl.col("end_s").fill_null(np.inf) > time)
    )
    node, number = here["node"].to_numpy(), here["gpu"].to_numpy()
    np.subtract.at(single, (node, column[node, number]), here["share"].to_numpy())
    single[free[:, 2] <= _SLACK] = 0.0  # an exclusive job has the node
    return _Single(gpus, single)


def _fragmented(
    kinds: _Kinds,
    typical: npt.NDArray[np.int64],
    free: FloatArray,
    single: _Single | None,
    idle: BoolArray,
) -> float:
    if not len(typical):
        return 0.0
    gpus = free[:, 2]
    asked = kinds.asks[typical, 2][:, None]
    if single is not None:
        beyond = np.array([single.lost(one) for one in kinds.asks[typical]])
    else:
        beyond = np.broadcast_to(gpus - np.floor(gpus + _SLACK), (len(typical), len(gpus)))
    lost = np.where(kinds.fit(typical, free, single, idle) & (asked > 0), beyond, gpus)
    jobs = kinds.jobs[typical]
    return float((lost.sum(axis=1) * jobs).sum() / jobs.sum())


def _kinds(workload: Workload, cluster: Cluster) -> _Kinds:
    chunks = workload.chunks
    shares = chunks["tasks"] > 0
    nothing = np.zeros(len(workload))
    asks = [
        np.where(shares, chunks[f"{name}_per_task"], workload.per_node.get(name, nothing))
        for name in AMOUNTS
    ]
    asks += [workload.consumables.get(name, nothing) for name in cluster.consumables]
    names = (*AMOUNTS, *cluster.consumables)
    empty = ~shares | (chunks["exclusive"] > 0)
    table = np.column_stack([*asks, empty, workload.partition.codes, workload.features.codes])
    texts = [read_more_tasks(text) for text in workload.more_tasks.labels]
    of_several = np.flatnonzero(workload.more_tasks.codes >= 0)
    rows = [
        (job, [one.asks(name) for name in names])
        for job in of_several.tolist()
        for one in texts[workload.more_tasks.codes[job]]
    ]
    job = np.array([job for job, _ in rows], np.int64)
    amounts = np.array([amounts for _, amounts in rows]).reshape(len(rows), len(names))
    table = np.concatenate([table, np.column_stack([amounts, table[job, len(names) :]])])
    found, of = np.unique(table, axis=0, return_inverse=True)
    of, further = of.ravel()[: len(workload)], of.ravel()[len(workload) :]
    jobs = np.bincount(of, minlength=len(found))
    groups = np.repeat(np.arange(len(cluster.nodes)), [group.count for group in cluster.nodes])
    may = [
        [_may(cluster, workload, int(row[-2]), int(row[-1]), group) for group in cluster.nodes]
        for row in found
    ]
    several = np.column_stack([job, further])
    where = np.array(may)[:, groups]
    return _Kinds(of, several, found[:, :-3], found[:, -3] > 0, where, jobs)


def _may(cluster: Cluster, workload: Workload, partition: int, features: int, group: Any) -> bool:
    """Return whether jobs of a partition and with features may run on a node group.

    -1 stands for no named partition, and for no features.
    """
    label = workload.partition.labels[partition] if partition >= 0 else None
    for one in cluster.partitions:
        named = one.name == label if label is not None else one.default
        if named and one.groups is not None and group.name not in one.groups:
            return False
    return features < 0 or has_features(workload.features.labels[features], group.all_features)


def _amounts(cluster: Cluster) -> dict[str, FloatArray]:
    """Return the amounts of each node [nodes]; 0 if not given."""
    counts = [group.count for group in cluster.nodes]
    return {
        name: np.repeat([group.amount(name) or 0.0 for group in cluster.nodes], counts)
        for name in (*AMOUNTS, *cluster.consumables)
    }


def _edges(placements: pl.DataFrame, steps: int, end_s: float | None) -> FloatArray:
    if steps < 1:
        raise ConfigError(f"steps is {steps}; it must be 1 or more")
    if end_s is None:
        ends = placements["end_s"].fill_null(strategy="zero")
        end_s = max(float(ends.max() or 0.0), float(placements["start_s"].max() or 0.0))  # type: ignore[arg-type]
    edges: FloatArray = np.linspace(0.0, max(end_s, 1e-3), steps + 1)
    return edges


def _span(placements: pl.DataFrame, last_s: float) -> tuple[FloatArray, FloatArray]:
    """Return start and end of each placement (s); running jobs end with the last step."""
    return placements["start_s"].to_numpy(), placements["end_s"].fill_null(last_s).to_numpy()
