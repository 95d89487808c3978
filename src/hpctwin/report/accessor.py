"""``result.plot``, and reports of whole results. What needs matplotlib is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from hpctwin.report.columns import format_metric, metric_name

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from hpctwin.metrics import By
    from hpctwin.simulation import Result

__all__ = ["Plots", "breakdown_table", "report_results"]


class Plots:
    """Figures of one result; each takes the options of its namesake in `hpctwin.report`."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def gantt(self, **options: Any) -> Figure:
        """Jobs on nodes; true node numbers where the simulation tracked them."""
        from hpctwin.report.gantt import plot_gantt

        result = self._result
        cores = result.in_cores
        return plot_gantt(
            result.jobs,
            result.node_map if cores is None else cores.core_map(),
            lost=result.lost,
            nodes=result.cluster.node_count if cores is None else round(cores.cores),
            of="node" if cores is None else "core",
            **{"start_epoch_s": result.workload.start_epoch_s, **options},
        )

    def utilization(self, **options: Any) -> Figure:
        """Nodes in use over time."""
        from hpctwin.report.timeline import plot_utilization

        return plot_utilization({self._result.policy: self._result.series}, **self._dated(options))

    def queue(self, **options: Any) -> Figure:
        """Waiting jobs over time."""
        from hpctwin.report.timeline import plot_queue

        return plot_queue({self._result.policy: self._result.series}, **self._dated(options))

    def heatmap(self, **options: Any) -> Figure:
        """How much of each node jobs held over time, where they share nodes."""
        from hpctwin.report.shared_nodes import plot_heatmap

        return plot_heatmap(self._result.node_use(), **self._dated(options))

    def fragmentation(self, **options: Any) -> Figure:
        """What was free and of no use over time, where jobs share nodes."""
        from hpctwin.report.shared_nodes import plot_fragmentation

        return plot_fragmentation(self._result.fragmentation(), **self._dated(options))

    def _dated(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"start_epoch_s": self._result.workload.start_epoch_s, **options}


def report_results(
    path: Path, results: Mapping[str, Result], *, title: str | None = None, intro: str = ""
) -> Path:
    """Write an HTML report that compares results by policy.

    Raises:
        OutputError: the file cannot be written.
    """
    from hpctwin.report.html import write_report
    from hpctwin.report.run import ReportedRun

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


def breakdown_table(found: pl.DataFrame, by: By) -> Table:
    """A table of figures by class of jobs, as of `hpctwin.metrics.breakdown`."""
    table = Table(box=box.SIMPLE_HEAD, title=f"by {by}")
    for column in found.columns:
        heading = by if column == "bin" else metric_name(column)
        table.add_column(heading, justify="left" if column == "bin" else "right")
    for row in found.iter_rows(named=True):
        table.add_row(*(str(v) if k == "bin" else format_metric(k, v) for k, v in row.items()))
    return table
