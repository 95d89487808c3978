"""What a run is counted in: nodes where jobs have whole ones, cores where they share them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin import metrics
from hpctwin.metrics.summary.sources import JobTable
from hpctwin.metrics.summary.summary import summarize_jobs
from hpctwin.metrics.summary.sums import ExactSum
from hpctwin.model import Cluster, Workload
from hpctwin.model.demand.requested_totals import totals_asked
from hpctwin.simulation.result.job_history import Course
from hpctwin.simulation.result.size_history import sized_figures, sized_series

if TYPE_CHECKING:
    from hpctwin.metrics import By

__all__ = [
    "MILLI",
    "CoreCount",
    "HeldOverTime",
    "NodeCount",
    "core_map",
    "cores_asked",
    "cores_held",
    "held_s",
    "of_shared_nodes",
    "there",
]

FloatArray = npt.NDArray[np.float64]

MILLI = 1000
"""Cores are counted in thousandths."""


class NodeCount:
    """A run whose jobs have whole nodes.

    Args:
        course: how the jobs went.
        lost: as a result's.
        capacity: what is up, over time.
        stretches: as a result's.
        size: of the cluster.
    """

    def __init__(
        self,
        course: Course | JobTable,
        lost: pl.DataFrame,
        capacity: pl.DataFrame,
        stretches: pl.DataFrame | None,
        size: int,
    ) -> None:
        self._course = course
        self.lost, self.capacity, self.stretches = lost, capacity, stretches
        self._size = size

    @property
    def jobs(self) -> pl.DataFrame:
        """The jobs; ``nodes`` holds what each counts with."""
        return self._course.table

    def figures(self) -> dict[str, Any]:
        """Sum up the run; see `hpctwin.metrics.summarize`."""
        if self.stretches is None:
            return summarize_jobs(self._course.source, self.lost, self.capacity, self._size)
        return sized_figures(self.jobs, self.stretches, self.lost, self.capacity, self._size)

    def series(self) -> pl.DataFrame:
        """Return queue, running jobs and nodes over time; see `hpctwin.metrics.series`."""
        if self.stretches is None:
            return metrics.series(self.jobs, self.lost, self.capacity)
        return sized_series(self.jobs, self.stretches, self.lost, self.capacity)

    def breakdown(self, by: By) -> pl.DataFrame:
        """Sum up the run by class of jobs; see `hpctwin.metrics.breakdown`."""
        return metrics.breakdown(self.jobs, by)

    def in_nodes(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return `jobs` or `lost` with what they count with as a number of nodes."""
        return table


class CoreCount(NodeCount):
    """A run whose jobs share nodes: ``nodes`` of its tables holds thousandths of cores.

    A job counts with the cores it held, or asks for if it never ran. An exclusive job holds all cores of
    its nodes. Whole nodes that are not given count as those of the largest group.

    Args:
        workload: the jobs.
        cluster: the cluster.
        jobs, lost, stretches, placements: as a result's.
        capacity: thousandths of cores that are up, over time.
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
        )

    def figures(self) -> dict[str, Any]:
        """See `NodeCount`; tells how well memory and GPUs were used too."""
        held = HeldOverTime(self._cluster)
        held.add(self._placements)
        return of_shared_nodes(super().figures(), self._cluster, held.totals())

    def series(self) -> pl.DataFrame:
        """See `NodeCount`; with ``used_cores`` for ``used_nodes`` and so on."""
        return super().series().select(
            (pl.col(name) / MILLI).alias(name.replace("_nodes", "_cores"))
            if name.endswith("_nodes")
            else pl.col(name)
            for name in ("time_s", "queue_length", "queued_nodes", "running_jobs", "used_nodes",
                         "free_nodes", "up_nodes", "utilization")
        )  # fmt: skip

    def breakdown(self, by: By) -> pl.DataFrame:
        """See `NodeCount`; with ``core_hours`` for ``node_hours``."""
        sized = cores_held(self._whole, self._placements)
        return metrics.breakdown(sized, by).rename({"node_hours": "core_hours"})

    def in_nodes(self, table: pl.DataFrame) -> pl.DataFrame:
        """See `NodeCount`: cores over those of a mean node."""
        per_node = there(self._cluster, "cores") / self._cluster.node_count
        return table.with_columns(nodes=pl.col("nodes") / (per_node * MILLI))

    def _counted(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return jobs or attempts with the cores they held; else those in their column ``asked``."""
        held = self._placements.group_by("job_id", "start_s").agg(held=pl.col("cores").sum())
        found = table.join(held, on=["job_id", "start_s"], how="left", maintain_order="left")
        cores = (pl.coalesce("held", "asked") * MILLI).round().cast(pl.Int64)
        return found.with_columns(nodes=cores).drop("held", "asked")


def there(cluster: Cluster, name: str) -> float:
    """How much the whole machine has of an amount: ``cores``, ``memory_gb``, ``gpus`` or a consumable."""
    return sum(group.count * (group.amount(name) or 0.0) for group in cluster.nodes)


class HeldOverTime:
    """How much of memory (GB), GPUs and consumables was held, times seconds; not modelled counts as 0.

    Args:
        cluster: the machine.
    """

    def __init__(self, cluster: Cluster) -> None:
        names = "memory_gb", "gpus", *cluster.consumables
        self._sums = {name: ExactSum() for name in names}

    def add(self, placements: pl.DataFrame) -> None:
        """Who held what of which node, of jobs that have ended, each told once."""
        length = placements["end_s"] - placements["start_s"]
        for name, held in self._sums.items():
            amount = placements[name].cast(pl.Float64) * length.cast(pl.Float64)
            held.add(amount.fill_null(0.0).to_numpy())

    def totals(self) -> dict[str, float]:
        """The sums."""
        return {name: held.total() for name, held in self._sums.items()}


def of_shared_nodes(
    counted: Mapping[str, Any], cluster: Cluster, held: Mapping[str, float]
) -> dict[str, Any]:
    """Figures that were counted in thousandths of cores, as those of a run on shared nodes.

    Args:
        counted: as of `summarize`.
        cluster: the machine.
        held: as of `HeldOverTime`.
    """
    found = {**counted}
    for nodes, cores in (
        ("mean_queued_nodes", "mean_queued_cores"),
        ("lost_node_s", "lost_core_s"),
        *([("held_node_s", "held_core_s")] if "held_node_s" in found else []),
    ):
        amount = found.pop(nodes)
        found[nodes] = None
        found[cores] = None if amount is None else amount / MILLI
    # Per processor, a job's slowdown is divided by whole nodes.
    found |= {name: None for name in found if name.endswith("pp_bounded_slowdown")}
    found["nodes"], found["cores"] = cluster.node_count, there(cluster, "cores")
    makespan = found["makespan_s"]
    for name, amount in held.items():
        if has := there(cluster, name):
            found[f"utilization_{name}"] = amount / (has * makespan) if makespan else None
    return found


def cores_asked(workload: Workload, cluster: Cluster) -> FloatArray:
    """The cores that each job asks for; whole nodes not given count as the largest group's [jobs]."""
    largest = max(group.cores or 0.0 for group in cluster.nodes)
    whole = {"cores": np.full(len(workload), largest)}
    return totals_asked(workload, whole)["cores"]


def core_map(cluster: Cluster, placements: pl.DataFrame) -> pl.DataFrame:
    """Where jobs ran, core by core: as a result's ``node_map``, with cores numbered through all nodes.

    Which cores of a node a job has is not simulated: it is drawn on the lowest that are free. Parts of
    a core are drawn as a whole one while there is room.

    Args:
        cluster: the machine.
        placements: who held what of which node.
    """
    first: list[float] = []
    for group in cluster.nodes:
        cores = max(1, round(group.cores or 0))
        first += [cores] * group.count
    begins = np.concatenate([[0], np.cumsum(first)]).astype(np.int64)
    rows: list[tuple[Any, ...]] = []
    taken: dict[int, list[float]] = {}  # until when each core of a node is drawn
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
    """Jobs with the cores that they held, rounded up, as ``nodes``; if they never ran it stays."""
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
    """Core- or GPU-seconds that each job held, lost attempts included [jobs].

    Args:
        jobs: a result's.
        lost: its attempts that failed.
        cluster: the machine.
        what: of which; a job on whole nodes holds all that they have.
        node_map: where jobs ran, if nodes have identity.
        placements: who held what, where nodes are shared.

    Returns:
        None where it is not known: what nodes have, or, where they differ, on which ones jobs ran.
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
