"""Data of a run for reports and pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from hpctwin.energy.accounts.outputs import node_log, power_changes
from hpctwin.metrics import Summary
from hpctwin.model import Cluster
from hpctwin.report.figures.axes import NodeTicks, node_ticks
from hpctwin.simulation.result.counts import core_map, cores_held

if TYPE_CHECKING:
    from hpctwin.simulation import Result

__all__ = ["ReportedRun"]


@dataclass(frozen=True, eq=False)
class ReportedRun:
    """One run.

    Args:
        label: Name of its policy.
        jobs: Jobs of the result.
        series: Their `hpctwin.metrics.time_series`.
        summary: Their `hpctwin.metrics.summarize`, and further metrics of the run.
        node_map, placements, lost: Tables as of a result.
        cluster: The cluster; required with ``placements``.
        power: Power over time, a row at each change: ``time_s``, ``total_w``; None if unknown.
        states: Power states of each node: ``node``, ``state``, ``start_s``, ``end_s``.
        cooling: Table for `plot_cooling`.
        costs: Cost and emissions of the power, as of `cost_changes`.
        manifest: Settings of the run; empty if unknown.
    """

    label: str
    jobs: pl.DataFrame
    series: pl.DataFrame
    summary: Summary
    node_map: pl.DataFrame | None = None
    placements: pl.DataFrame | None = None
    lost: pl.DataFrame | None = None
    cluster: Cluster | None = None
    power: pl.DataFrame | None = None
    states: pl.DataFrame | None = None
    cooling: pl.DataFrame | None = None
    costs: pl.DataFrame | None = None
    manifest: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_result(cls, label: str, result: Result) -> ReportedRun:
        """Return the data of a result in memory."""
        energy = result.energy
        return cls(
            label=label,
            jobs=result.jobs,
            series=result.series,
            summary=_figures(result),
            node_map=result.node_map,
            placements=result.placements,
            lost=result.lost,
            cluster=result.cluster,
            power=None if energy is None else power_changes(energy),
            states=None if energy is None or energy.log is None else node_log(energy),
        )

    @property
    def of(self) -> str:
        """Unit of `lanes`: node, or core (through all nodes) if nodes are shared."""
        return "node" if self.placements is None else "core"

    @property
    def sized(self) -> pl.DataFrame:
        """Jobs; with shared nodes, ``nodes`` is the number of whole cores that a job held."""
        return self.jobs if self.placements is None else cores_held(self.jobs, self.placements)

    @cached_property
    def lanes(self) -> pl.DataFrame | None:
        """Nodes or cores of jobs; None if nodes were only counted. See `plot_gantt`."""
        if self.placements is None or self.cluster is None:
            return self.node_map
        return core_map(self.cluster, self.placements)

    @property
    def ticks(self) -> NodeTicks | None:
        """Names of nodes along `lanes`; None if the cluster is unknown."""
        return None if self.cluster is None else node_ticks(self.cluster, by_core=self.of == "core")

    @property
    def lane_count(self) -> int | None:
        """Number of nodes or cores; None if unknown."""
        if self.cluster is None or self.of == "node":
            return None if self.cluster is None else self.cluster.node_count
        return sum(group.count * max(1, round(group.cores or 0)) for group in self.cluster.nodes)


def _figures(result: Result) -> dict[str, float | int | None]:
    summary = result.summary()
    numbers = {k: v for k, v in summary.items() if v is None or isinstance(v, int | float)}
    return {**numbers, "engine_ms": 1000 * result.engine_s}
