"""Figures of runs on shared nodes: what is counted in nodes elsewhere is counted in cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from hpctwin.metrics import series, summarize
from hpctwin.metrics.summary.sums import ExactSum
from hpctwin.model import Cluster, Workload
from hpctwin.model.demand.requested_totals import totals_asked
from hpctwin.simulation.result.size_history import sized_figures, sized_series

__all__ = [
    "MILLI",
    "HeldOverTime",
    "InCores",
    "core_map",
    "cores_asked",
    "cores_held",
    "in_cores",
    "of_shared_nodes",
    "there",
]

FloatArray = npt.NDArray[np.float64]

MILLI = 1000
"""Cores are counted in thousandths."""


@dataclass(frozen=True)
class InCores:
    """A run whose columns of nodes hold thousandths of cores.

    Args:
        jobs, lost: as a result's. A job counts with the cores it held (all of its nodes', if it was
            exclusive), or asks for if it never ran; whole nodes not given count as the largest group's.
        capacity: cores that are up, over time.
        cluster: the machine.
        placements: who held what of which node.
        stretches: as a result's, where jobs are suspended for others.
    """

    jobs: pl.DataFrame
    lost: pl.DataFrame
    capacity: pl.DataFrame
    cluster: Cluster
    placements: pl.DataFrame
    stretches: pl.DataFrame | None = None

    def shares(self, table: pl.DataFrame) -> pl.DataFrame:
        """Jobs or lost attempts with what they held as nodes: cores over those of a mean node."""
        per_node = self.cores / self.cluster.node_count
        return table.with_columns(nodes=pl.col("nodes") / (per_node * MILLI))

    @property
    def cores(self) -> float:
        """Of the whole machine."""
        return there(self.cluster, "cores")

    def figures(self) -> dict[str, Any]:
        """As `summarize`, with cores in the place of nodes, and how well memory and GPUs were used."""
        cores = round(self.cores * MILLI)
        if self.stretches is None:
            found = summarize(self.jobs, self.lost, self.capacity, cores)
        else:
            found = sized_figures(self.jobs, self.stretches, self.lost, self.capacity, cores)
        held = HeldOverTime(self.cluster)
        held.add(self.placements)
        return of_shared_nodes(found, self.cluster, held.totals())

    def series(self) -> pl.DataFrame:
        """As `series`, with ``used_cores`` for ``used_nodes`` and so on."""
        parts = self.lost, self.capacity
        if self.stretches is None:
            found = series(self.jobs, *parts)
        else:
            found = sized_series(self.jobs, self.stretches, *parts)
        return found.select(
            (pl.col(name) / MILLI).alias(name.replace("_nodes", "_cores"))
            if name.endswith("_nodes")
            else pl.col(name)
            for name in ("time_s", "queue_length", "queued_nodes", "running_jobs", "used_nodes",
                         "free_nodes", "up_nodes", "utilization")
        )  # fmt: skip


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


def in_cores(
    workload: Workload,
    cluster: Cluster,
    jobs: pl.DataFrame,
    lost: pl.DataFrame,
    capacity: pl.DataFrame,
    placements: pl.DataFrame,
    stretches: pl.DataFrame | None = None,
) -> InCores:
    """A run on shared nodes, in cores; ``capacity`` holds thousandths of cores in its column ``nodes``."""
    asked = cores_asked(workload, cluster)
    held = placements.group_by("job_id", "start_s").agg(held=pl.col("cores").sum())

    def counted(table: pl.DataFrame) -> pl.DataFrame:
        found = table.join(held, on=["job_id", "start_s"], how="left", maintain_order="left")
        cores = (pl.coalesce("held", "asked") * MILLI).round().cast(pl.Int64)
        return found.with_columns(nodes=cores).drop("held", "asked")

    in_all = counted(jobs.with_columns(asked=pl.Series(asked)))
    if stretches is not None:
        of_job = in_all.select("job_id", "nodes")
        stretches = stretches.drop("nodes").join(of_job, on="job_id", maintain_order="left")
    return InCores(
        in_all,
        counted(lost.with_columns(asked=pl.lit(0.0))),
        capacity,
        cluster,
        placements,
        stretches,
    )
