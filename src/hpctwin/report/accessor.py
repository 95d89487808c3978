"""``result.plot``, and reports of whole results. What needs matplotlib is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.table import Table

from hpctwin.errors import SimulationError
from hpctwin.report.tables.columns import format_metric, metric_name

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from hpctwin.energy import Energy
    from hpctwin.metrics import By
    from hpctwin.report.pages.run import ReportedRun
    from hpctwin.simulation import Result

__all__ = ["Plots", "breakdown_table", "report_results"]


class Plots:
    """Figures of one result, as `hpctwin report` and ``--plot`` draw them.

    A window is given by ``start_s`` and ``end_s``, seconds; all of the simulation if they are left out. Dates
    are shown where the workload tells what time its time zero is.
    """

    def __init__(self, result: Result) -> None:
        self._result = result
        self._epoch_s = result.workload.start_epoch_s
        self._run = f"{result.workload.name} under {result.policy}"

    def gantt(
        self,
        *,
        title: str | None = None,
        color_by: Literal["job", "wait"] = "job",
        start_s: float | None = None,
        end_s: float | None = None,
    ) -> Figure:
        """Jobs on nodes; true node numbers where the simulation tracked them."""
        from hpctwin.report.figures.gantt import plot_gantt

        entry = self._entry()
        return plot_gantt(
            entry.jobs,
            entry.lanes,
            lost=entry.lost,
            nodes=entry.lane_count,
            of=entry.of,
            ticks=entry.ticks,
            title=title,
            color_by=color_by,
            start_s=start_s,
            end_s=end_s,
            start_epoch_s=self._epoch_s,
        )

    def utilization(
        self, *, title: str | None = None, start_s: float | None = None, end_s: float | None = None
    ) -> Figure:
        """Nodes in use over time."""
        from hpctwin.report.figures.timeline import plot_utilization

        series = {self._result.policy: self._result.series}
        return plot_utilization(
            series, title=title, start_s=start_s, end_s=end_s, start_epoch_s=self._epoch_s
        )

    def queue(
        self, *, title: str = "Queue", start_s: float | None = None, end_s: float | None = None
    ) -> Figure:
        """Waiting jobs over time."""
        from hpctwin.report.figures.timeline import plot_queue

        series = {self._result.policy: self._result.series}
        return plot_queue(
            series, title=title, start_s=start_s, end_s=end_s, start_epoch_s=self._epoch_s
        )

    def wait_cdf(self, *, title: str = "Waiting times") -> Figure:
        """The share of jobs that waited at most so long."""
        from hpctwin.report.figures.comparison import plot_wait_cdf

        return plot_wait_cdf({self._result.policy: self._result.jobs}, title=title)

    def wait_by_size(self, *, title: str = "Mean wait by job size") -> Figure:
        """Who waits: narrow jobs or wide ones."""
        from hpctwin.report.figures.comparison import plot_wait_by_size

        entry = self._entry()
        return plot_wait_by_size({entry.label: entry.sized}, of=f"{entry.of}s", title=title)

    def wait_heat(self, *, title: str = "Mean wait by size and walltime") -> Figure:
        """Who waits: narrow or wide, short or long jobs."""
        from hpctwin.report.figures.wait_heat import plot_wait_heat

        entry = self._entry()
        return plot_wait_heat({entry.label: entry.sized}, of=f"{entry.of}s", title=title)

    def workload(self, *, title: str | None = None) -> Figure:
        """The jobs themselves: when they came, how wide and how long they are."""
        from hpctwin.report.figures.workload import plot_workload

        return plot_workload(self._result.workload, title=title)

    def heatmap(self, *, title: str = "Held of each node") -> Figure:
        """How much of each node jobs held over time, where they share nodes."""
        from hpctwin.report.figures.axes import node_ticks
        from hpctwin.report.figures.shared_nodes import plot_heatmap

        return plot_heatmap(
            self._result.node_use(),
            ticks=node_ticks(self._result.cluster),
            title=title,
            start_epoch_s=self._epoch_s,
        )

    def fragmentation(self, *, title: str = "Free, and of no use to the jobs that wait") -> Figure:
        """What was free and of no use over time, where jobs share nodes."""
        from hpctwin.report.figures.shared_nodes import plot_fragmentation

        found = self._result.fragmentation()
        return plot_fragmentation(found, title=title, start_epoch_s=self._epoch_s)

    def node_states(
        self,
        *,
        title: str | None = None,
        start_s: float | None = None,
        end_s: float | None = None,
        nodes: int | None = None,
    ) -> Figure:
        """In what power state each node was, of the first so many; of a simulation with ``log=True``."""
        from hpctwin.report.energy_figures.energy import plot_node_states

        title = title or f"Node states, {self._run}"
        return plot_node_states(
            self._energy(), title=title, start_s=start_s, end_s=end_s, nodes=nodes
        )

    def power(self, *, title: str | None = None) -> Figure:
        """What all nodes draw over time; of a simulation with ``log=True``."""
        from hpctwin.report.energy_figures.energy import plot_power

        title = title or f"Power drawn, {self._run}"
        return plot_power({self._result.policy: self._energy()}, title=title)

    def cooling(self, cooled: pl.DataFrame, *, title: str | None = None) -> Figure:
        """What the machine and its cooling took, its PUE and its water, from what ``energy.cooled`` gave."""
        from hpctwin.report.energy_figures.energy import plot_cooling

        title = title or f"Cooling, {self._run}"
        return plot_cooling(cooled, title=title, start_epoch_s=self._epoch_s)

    def _entry(self) -> ReportedRun:
        from hpctwin.report.pages.run import ReportedRun

        return ReportedRun.of_result(self._result.policy, self._result)

    def _energy(self) -> Energy:
        if self._result.energy is None:
            raise SimulationError(
                f"it is not known what nodes of cluster {self._result.cluster.name!r} draw, so there is no "
                "power to draw: give 'modes' or 'components' of its nodes (docs/energy.md)"
            )
        return self._result.energy


def report_results(
    path: Path, results: Mapping[str, Result], *, title: str | None = None, intro: str = ""
) -> Path:
    """Write an HTML report that compares results by policy.

    Raises:
        OutputError: the file cannot be written.
    """
    from hpctwin.report.pages.html import write_report
    from hpctwin.report.pages.run import ReportedRun

    some = next(iter(results.values()))
    workload = some.workload
    return write_report(
        path,
        title=title or f"{workload.name}: {len(results)} policies compared",
        entries=[ReportedRun.of_result(name, result) for name, result in results.items()],
        intro=intro,
        workload_name=workload.name,
        workload=workload,
        nodes=some.cluster.node_count,
        start_epoch_s=workload.start_epoch_s,
    )


def breakdown_table(found: pl.DataFrame, by: By, label: str = "") -> Table:
    """A table of figures by class of jobs, as of `hpctwin.metrics.jobs.breakdown`; of what is labelled so."""
    table = Table(box=box.SIMPLE_HEAD, title=f"{label} by {by}".strip())
    for column in found.columns:
        heading = by if column == "bin" else metric_name(column)
        table.add_column(heading, justify="left" if column == "bin" else "right", overflow="fold")
    for row in found.iter_rows(named=True):
        table.add_row(*(str(v) if k == "bin" else format_metric(k, v) for k, v in row.items()))
    return table
