"""Units of a run: whole nodes, or cores if jobs share nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin import metrics
from hpctwin.metrics.sources import ExactSum, JobTable
from hpctwin.metrics.summary import summarize_jobs
from hpctwin.model import Cluster, Workload
from hpctwin.model.demand import cores_asked
from hpctwin.simulation.result.history import Course, sized_figures, sized_series

if TYPE_CHECKING:
    from hpctwin.metrics import By

__all__ = [
    "MILLI",
    "CoreCount",
    "HeldOverTime",
    "NodeCount",
    "PreemptionSums",
    "core_map",
    "cores_held",
    "held_s",
    "of_shared_nodes",
    "there",
]

FloatArray = npt.NDArray[np.float64]

MILLI = 1000
"""Cores are counted in thousandths."""


class PreemptionSums:
    """Counts of preemptions and preempted jobs, node-seconds lost by them, and suspended time."""

    def __init__(self) -> None:
        self._times = self._jobs = 0
        self._lost = ExactSum()
        self._suspended: ExactSum | None = None

    def add(self, jobs: pl.DataFrame) -> None:
        """Add jobs of a table `hpctwin.Result.jobs`."""
        times = jobs["preemptions"]
        self._times += int(times.sum())
        self._jobs += int((times > 0).sum())
        self._lost.add((jobs["nodes"] * jobs["preempted_s"]).to_numpy())
        if "suspended_s" in jobs.columns:
            self._suspended = self._suspended or ExactSum()
            self._suspended.add(jobs["suspended_s"].to_numpy())

    def figures(self) -> dict[str, Any]:
        """Return the metrics by name."""
        return {
            "preemptions": self._times,
            "preempted_jobs": self._jobs,
            "preempted_node_s": self._lost.total(),
            **({} if self._suspended is None else {"suspended_s": self._suspended.total()}),
        }


class NodeCount:
    """Counts of a run whose jobs have whole nodes.

    Args:
        course: History of the jobs.
        lost: Table ``lost`` of the result.
        capacity: Nodes that are up, over time.
        stretches: Table ``stretches`` of the result.
        size: Number of nodes of the cluster.
        tau_s: Threshold of bounded slowdowns, in seconds.
    """

    def __init__(
        self,
        course: Course | JobTable,
        lost: pl.DataFrame,
        capacity: pl.DataFrame,
        stretches: pl.DataFrame | None,
        size: int,
        tau_s: float,
    ) -> None:
        self._course = course
        self.lost, self.capacity, self.stretches = lost, capacity, stretches
        self._size, self._tau_s = size, tau_s

    @property
    def jobs(self) -> pl.DataFrame:
        """The jobs; ``nodes`` is the amount that each counts with."""
        return self._course.table

    def figures(self) -> dict[str, Any]:
        """Sum up the run; see `hpctwin.metrics.summarize`."""
        if self.stretches is None:
            return summarize_jobs(
                self._course.source, self.lost, self.capacity, self._size, self._tau_s
            )
        return sized_figures(
            self.jobs, self.stretches, self.lost, self.capacity, self._size, self._tau_s
        )

    def series(self) -> pl.DataFrame:
        """Return queue, running jobs and nodes over time; see `hpctwin.metrics.series`."""
        if self.stretches is None:
            return metrics.series(self.jobs, self.lost, self.capacity)
        return sized_series(self.jobs, self.stretches, self.lost, self.capacity)

    def breakdown(self, by: By) -> pl.DataFrame:
        """Sum up the run by class of jobs; see `hpctwin.metrics.breakdown`."""
        return metrics.breakdown(self.jobs, by, tau_s=self._tau_s)

    def in_nodes(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return `jobs` or `lost` with their amounts as a number of nodes."""
        return table


class CoreCount(NodeCount):
    """Counts of a run whose jobs share nodes: ``nodes`` is in thousandths of cores.

    A job counts with the cores it held, or with its requested cores if it never ran. An exclusive
    job holds all cores of its nodes. Whole nodes that are not known count as those of the largest
    group.

    Args:
        workload: The jobs.
        cluster: The cluster.
        jobs, lost, stretches, placements: Tables of the result.
        capacity: Thousandths of cores that are up, over time.
        tau_s: Threshold of bounded slowdowns, in seconds.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        jobs: pl.DataFrame,
        lost: pl.DataFrame,
        capacity: pl.DataFrame,
        stretches: pl.DataFrame | None,
        placements: pl.DataFrame,
        tau_s: float,
    ) -> None:
        self._cluster, self._placements, self._whole = cluster, placements, jobs
        asked = pl.Series(cores_asked(workload, cluster))
        counted = self._counted(jobs.with_columns(asked=asked))
        if stretches is not None:
            of_job = counted.select("job_id", "nodes")
            stretches = stretches.drop("nodes").join(of_job, on="job_id", maintain_order="left")
        super().__init__(
            JobTable(counted),
            self._counted(lost.with_columns(asked=pl.lit(0.0))),
            capacity,
            stretches,
            round(there(cluster, "cores") * MILLI),
            tau_s,
        )

    def figures(self) -> dict[str, Any]:
        """See `NodeCount`; includes the utilization of memory and GPUs."""
        held = HeldOverTime(self._cluster)
        held.add(self._placements)
        return of_shared_nodes(super().figures(), self._cluster, held.totals())

    def series(self) -> pl.DataFrame:
        """See `NodeCount`; with ``used_cores`` instead of ``used_nodes`` and so on."""
        return super().series().select(
            (pl.col(name) / MILLI).alias(name.replace("_nodes", "_cores"))
            if name.endswith("_nodes")
            else pl.col(name)
            for name in ("time_s", "queue_length", "queued_nodes", "running_jobs", "used_nodes",
                         "free_nodes", "up_nodes", "utilization")
        )  # fmt: skip

    def breakdown(self, by: By) -> pl.DataFrame:
        """See `NodeCount`; with ``core_hours`` instead of ``node_hours``."""
        sized = cores_held(self._whole, self._placements)
        return metrics.breakdown(sized, by, tau_s=self._tau_s).rename({"node_hours": "core_hours"})

    def in_nodes(self, table: pl.DataFrame) -> pl.DataFrame:
        """See `NodeCount`: cores divided by those of a mean node."""
        per_node = there(self._cluster, "cores") / self._cluster.node_count
        return table.with_columns(nodes=pl.col("nodes") / (per_node * MILLI))

    def _counted(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return jobs or attempts with the cores they held, or column ``asked`` if none."""
        held = self._placements.group_by("job_id", "start_s").agg(held=pl.col("cores").sum())
        found = table.join(held, on=["job_id", "start_s"], how="left", maintain_order="left")
        cores = (pl.coalesce("held", "asked") * MILLI).round().cast(pl.Int64)
        return found.with_columns(nodes=cores).drop("held", "asked")


def there(cluster: Cluster, name: str) -> float:
    """Return the whole cluster's amount of a resource.

    The resource is ``cores``, ``memory_gb``, ``gpus`` or a consumable.
    """
    return sum(group.count * (group.amount(name) or 0.0) for group in cluster.nodes)


class HeldOverTime:
    """Memory (GB), GPUs and consumables held, times seconds; 0 if not modeled.

    Args:
        cluster: The cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        names = "memory_gb", "gpus", *cluster.consumables
        self._sums = {name: ExactSum() for name in names}

    def add(self, placements: pl.DataFrame) -> None:
        """Add placements of ended jobs; each placement may be added once."""
        length = placements["end_s"] - placements["start_s"]
        for name, held in self._sums.items():
            amount = placements[name].cast(pl.Float64) * length.cast(pl.Float64)
            held.add(amount.fill_null(0.0).to_numpy())

    def totals(self) -> dict[str, float]:
        """Return the sums."""
        return {name: held.total() for name, held in self._sums.items()}


def of_shared_nodes(
    counted: Mapping[str, Any], cluster: Cluster, held: Mapping[str, float]
) -> dict[str, Any]:
    """Return metrics in thousandths of cores as those of a run on shared nodes.

    Args:
        counted: Metrics of `summarize`.
        cluster: The cluster.
        held: Totals of `HeldOverTime`.
    """
    found = {**counted}
    for nodes, cores in (
        ("mean_queued_nodes", "mean_queued_cores"),
        ("wasted_node_s", "lost_core_s"),
        *([("held_node_s", "held_core_s")] if "held_node_s" in found else []),
    ):
        amount = found.pop(nodes)
        found[nodes] = None
        found[cores] = None if amount is None else amount / MILLI
    # The slowdown per processor divides by whole nodes, so it has no meaning here.
    found |= {name: None for name in found if name.endswith("pp_bounded_slowdown")}
    found["nodes"], found["cores"] = cluster.node_count, there(cluster, "cores")
    makespan = found["makespan_s"]
    for name, amount in held.items():
        if has := there(cluster, name):
            found[f"utilization_{name}"] = amount / (has * makespan) if makespan else None
    return found


def core_map(cluster: Cluster, placements: pl.DataFrame) -> pl.DataFrame:
    """Return where jobs ran, core by core, as a ``node_map`` with cores as nodes.

    Cores are numbered through all nodes. The simulation does not decide which cores of a node a job
    has: the lowest free ones are drawn. Parts of a core are drawn as a whole one while there are
    enough.

    Args:
        cluster: The cluster.
        placements: Amounts that jobs held on nodes.
    """
    first: list[float] = []
    for group in cluster.nodes:
        cores = max(1, round(group.cores or 0))
        first += [cores] * group.count
    begins = np.concatenate([[0], np.cumsum(first)]).astype(np.int64)
    rows: list[tuple[Any, ...]] = []
    taken: dict[int, list[float]] = {}  # time until which each core of a node is drawn
    order = placements.sort("start_s", "end_s", "node", maintain_order=True)
    for job, node, start, end, cores in order.select(
        "job_id", "node", "start_s", "end_s", "cores"
    ).rows():
        until = taken.setdefault(node, [-np.inf] * int(begins[node + 1] - begins[node]))
        free = [core for core, upto in enumerate(until) if upto <= start]
        for core in free[: int(np.ceil(cores))]:
            until[core] = np.inf if end is None else end
            number = int(begins[node]) + core
            if rows and rows[-1][0] == job and rows[-1][3] + rows[-1][4] == number:
                rows[-1] = (*rows[-1][:4], rows[-1][4] + 1)
            else:
                rows.append((job, start, end, number, 1))
    schema = dict(placements.schema)
    return pl.DataFrame(
        rows,
        {"job_id": schema["job_id"], "start_s": pl.Float64, "end_s": pl.Float64,
         "first_node": pl.Int64, "count": pl.Int64},
        orient="row",
    )  # fmt: skip


def cores_held(jobs: pl.DataFrame, placements: pl.DataFrame) -> pl.DataFrame:
    """Return jobs with ``nodes`` as the cores they held, rounded up.

    It is unchanged for a job that never ran.
    """
    held = placements.group_by("job_id", "start_s").agg(held=pl.col("cores").sum().ceil())
    found = jobs.join(held, on=["job_id", "start_s"], how="left", maintain_order="left")
    return found.with_columns(nodes=pl.coalesce("held", "nodes").cast(pl.Int64)).drop("held")


def held_s(
    jobs: pl.DataFrame,
    lost: pl.DataFrame,
    cluster: Cluster,
    what: Literal["cores", "gpus"],
    node_map: pl.DataFrame | None,
    placements: pl.DataFrame | None,
) -> FloatArray | None:
    """Return the core- or GPU-seconds that each job held, with lost attempts [jobs].

    Args:
        jobs: Table of jobs of a result.
        lost: Its failed attempts.
        cluster: The cluster.
        what: The resource; a job on whole nodes holds all of theirs.
        node_map: Nodes of the jobs, if nodes have identity.
        placements: Amounts that jobs held, if nodes are shared.

    Returns:
        None if the nodes' amounts are not known, or if they differ and the nodes of the jobs are
        not known.
    """
    of_groups = [getattr(group, what) for group in cluster.nodes]
    if None in of_groups and (what == "cores" or set(of_groups) != {None}):
        return None
    each = np.repeat(
        np.array([value or 0.0 for value in of_groups]), [group.count for group in cluster.nodes]
    )
    if placements is not None:
        held = placements.select("job_id", "start_s", "end_s", held=pl.col(what))
    elif len(set(of_groups)) == 1:
        ran = jobs.filter(pl.col("start_s").is_not_null() & pl.col("end_s").is_not_null())
        columns = ("job_id", "start_s", "end_s", "nodes")
        both = pl.concat([ran.select(columns), lost.select(columns)], how="vertical_relaxed")
        held = both.with_columns(held=pl.col("nodes") * float(of_groups[0] or 0.0))
    elif node_map is not None:
        below = np.concatenate([[0.0], np.cumsum(each)])
        first = node_map["first_node"].to_numpy()
        held = node_map.with_columns(
            held=below[first + node_map["count"].to_numpy()] - below[first]
        )
    else:
        return None
    length = (pl.col("end_s") - pl.col("start_s")).cast(pl.Float64)
    sums = held.group_by("job_id").agg((length * pl.col("held")).sum().alias("held_s"))
    joined = jobs.select("job_id").join(sums, on="job_id", how="left", maintain_order="left")
    return joined["held_s"].fill_null(0.0).to_numpy()
