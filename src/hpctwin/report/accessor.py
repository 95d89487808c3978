"""Charts and tables of whole results; imports matplotlib on first use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.markup import escape
from rich.table import Table

from hpctwin.errors import SimulationError
from hpctwin.guesses import Guessed
from hpctwin.report.columns import format_alike, format_metric, metric_name
from hpctwin.report.verbatim import VerbatimTable

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from hpctwin.energy import Energy
    from hpctwin.metrics import By, Summary
    from hpctwin.report.pages.run import ReportedRun
    from hpctwin.simulation import Result

__all__ = ["ComparisonPlots", "ComparisonTables", "Plots", "breakdown_table", "report_results"]


class _Charts(Guessed):
    """Charts of one or several results, by policy.

    ``start_s`` and ``end_s`` give a window, in seconds; the default is the whole simulation. The
    axes show dates if the workload has the date of time zero.
    """

    def __init__(self, results: Mapping[str, Result]) -> None:
        self._results = results
        self._epoch_s = next(iter(results.values())).workload.start_epoch_s

    if not TYPE_CHECKING:

        def __call__(self, *_: object, **__: object) -> None:
            """Name the charts."""
            raise TypeError(f"plot draws several {self!r}; choose one")

    def __repr__(self) -> str:
        names = [name for name in dir(self) if not name.startswith("_")]
        return f"charts: {', '.join(f'plot.{name}()' for name in names)}"

    def wait_cdf(self, *, title: str = "Waiting times") -> Figure:
        """Draw the cumulative distribution of waits."""
        from hpctwin.report.figures.comparison import plot_wait_cdf

        jobs = {name: result.jobs for name, result in self._results.items()}
        return plot_wait_cdf(jobs, title=title)

    def utilization(
        self, *, title: str | None = None, start_s: float | None = None, end_s: float | None = None
    ) -> Figure:
        """Draw the nodes in use over time."""
        from hpctwin.report.figures.timeline import plot_utilization

        return plot_utilization(
            self._series(), title=title, start_s=start_s, end_s=end_s, start_epoch_s=self._epoch_s
        )

    def queue(
        self, *, title: str = "Queue", start_s: float | None = None, end_s: float | None = None
    ) -> Figure:
        """Draw the pending jobs over time."""
        from hpctwin.report.figures.timeline import plot_queue

        return plot_queue(
            self._series(), title=title, start_s=start_s, end_s=end_s, start_epoch_s=self._epoch_s
        )

    def wait_by_size(self, *, title: str = "Mean wait by job size") -> Figure:
        """Draw the mean wait of narrow and wide jobs."""
        from hpctwin.report.figures.comparison import plot_wait_by_size

        entries = self._entries()
        return plot_wait_by_size(
            {one.label: one.sized for one in entries}, of=f"{entries[0].of}s", title=title
        )

    def wait_heat(self, *, title: str = "Mean wait by size and walltime") -> Figure:
        """Draw the mean wait by size and walltime of jobs."""
        from hpctwin.report.figures.workload import plot_wait_heat

        entries = self._entries()
        return plot_wait_heat(
            {one.label: one.sized for one in entries}, of=f"{entries[0].of}s", title=title
        )

    def power(self, *, title: str | None = None) -> Figure:
        """Draw the power of all nodes over time; needs a simulation with ``log=True``."""
        from hpctwin.report.energy import plot_power

        some = next(iter(self._results.values()))
        title = title or f"Power drawn, {some.workload.name} under {', '.join(self._results)}"
        return plot_power(
            {name: _energy(result) for name, result in self._results.items()}, title=title
        )

    def _series(self) -> dict[str, pl.DataFrame]:
        return {name: result.series for name, result in self._results.items()}

    def _entries(self) -> list[ReportedRun]:
        from hpctwin.report.pages.run import ReportedRun

        return [ReportedRun.of_result(name, result) for name, result in self._results.items()]


class ComparisonPlots(_Charts):
    """Charts of compared results."""

    def bars(self, *, title: str = "Comparison") -> Figure:
        """Draw the main metrics as bars."""
        from hpctwin.report.figures.comparison import plot_compare_bars

        return plot_compare_bars(self._summaries(), title=title)

    def radar(self, *, title: str = "Policies on several metrics (outer is better)") -> Figure:
        """Draw a Kiviat diagram of the main metrics."""
        from hpctwin.report.figures.comparison import plot_radar

        return plot_radar(self._summaries(), title=title)

    def _summaries(self) -> dict[str, Summary]:
        return {name: result.summary() for name, result in self._results.items()}


class Plots(_Charts):
    """Charts of one result, as `hpctwin report` and ``--plot`` draw them."""

    def __init__(self, result: Result) -> None:
        super().__init__({result.policy: result})
        self._result = result
        self._run = f"{result.workload.name} under {result.policy}"

    def gantt(
        self,
        *,
        title: str | None = None,
        color_by: Literal["job", "wait"] = "job",
        start_s: float | None = None,
        end_s: float | None = None,
    ) -> Figure:
        """Draw jobs on nodes; with the true node numbers if the simulation tracked nodes."""
        from hpctwin.report.figures.gantt import plot_gantt

        (entry,) = self._entries()
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

    def workload(self, *, title: str | None = None) -> Figure:
        """Draw the jobs' arrivals, sizes and durations."""
        from hpctwin.report.figures.workload import plot_workload

        return plot_workload(self._result.workload, title=title)

    def heatmap(self, *, title: str = "Resources in use per node") -> Figure:
        """Draw the allocated share of each node over time, for shared nodes."""
        from hpctwin.report.figures.style import node_ticks
        from hpctwin.report.figures.timeline import plot_heatmap

        return plot_heatmap(
            self._result.node_use(),
            ticks=node_ticks(self._result.cluster),
            title=title,
            start_epoch_s=self._epoch_s,
        )

    def fragmentation(self, *, title: str = "Free resources unusable for pending jobs") -> Figure:
        """Draw free and unusable resources over time, for shared nodes."""
        from hpctwin.report.figures.timeline import plot_fragmentation

        found = self._result.fragmentation()
        return plot_fragmentation(found, title=title, start_epoch_s=self._epoch_s)

    def congestion(self, *, title: str | None = None) -> Figure:
        """Draw how busy links are; needs ``sharing`` and ``log=True``."""
        from hpctwin.report.figures.timeline import plot_congestion

        (entry,) = self._entries()
        if entry.link_tables is None:
            raise SimulationError(
                "no use of links was recorded; simulate jobs that communicate with 'sharing' and "
                "log=True, or in the command with --sharing"
            )
        title = title or f"Use of links, {self._run}"
        return plot_congestion(entry.link_tables, title=title, start_epoch_s=self._epoch_s)

    def node_states(
        self,
        *,
        title: str | None = None,
        start_s: float | None = None,
        end_s: float | None = None,
        nodes: int | None = None,
    ) -> Figure:
        """Draw the first `nodes` nodes' power states; needs a result with ``log=True``."""
        from hpctwin.report.energy import plot_node_states

        title = title or f"Node states, {self._run}"
        return plot_node_states(
            _energy(self._result), title=title, start_s=start_s, end_s=end_s, nodes=nodes
        )

    def cooling(self, cooled: pl.DataFrame, *, title: str | None = None) -> Figure:
        """Draw power, PUE and water temperatures from the result of ``energy.cooled``."""
        from hpctwin.report.energy import plot_cooling

        title = title or f"Cooling, {self._run}"
        return plot_cooling(cooled, title=title, start_epoch_s=self._epoch_s)


def _energy(result: Result) -> Energy:
    if result.energy is None:
        raise SimulationError(
            f"cluster {result.cluster.name!r} has no power model to plot; add "
            "'modes' or 'components' to its node groups "
            "(docs/how-to/power-price-and-carbon.md)"
        )
    return result.energy


class ComparisonTables:
    """Main metrics of compared results, as HTML and as LaTeX."""

    def __init__(self, results: Mapping[str, Result]) -> None:
        self._summaries = {name: result.summary() for name, result in results.items()}

    def html(self) -> str:
        """Return an HTML table with a policy per row; the best values are marked."""
        from hpctwin.report.pages.html import comparison_table

        return comparison_table(self._summaries)

    def latex(self) -> str:
        """Return the table of `hpctwin compare --latex`."""
        from hpctwin.report.latex import as_latex
        from hpctwin.report.tables import compare_table

        return as_latex(compare_table(self._summaries, alike=True))


def report_results(
    path: Path, results: Mapping[str, Result], *, title: str | None = None, intro: str = ""
) -> Path:
    """Write an HTML report that compares results by policy.

    Raises:
        OutputError: The file cannot be written.
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


def breakdown_table(found: pl.DataFrame, by: By, label: str = "", *, alike: bool = False) -> Table:
    """Return a labeled table of `hpctwin.metrics.jobs`, by class of jobs.

    With `alike`, each column has one unit and one number of decimals.
    """
    table = VerbatimTable(box=box.SIMPLE_HEAD, title=escape(f"{label} by {by}".strip()))
    for column in found.columns:
        heading = by if column == "bin" else metric_name(column)
        table.add_column(heading, justify="left" if column == "bin" else "right", overflow="fold")
    for row in zip(*(_texts(column, alike) for column in found), strict=True):
        table.add_row(*row)
    return table


def _texts(column: pl.Series, alike: bool) -> list[str]:
    if column.name == "bin":
        return [str(value) for value in column]
    if alike:
        return format_alike(column.name, column.to_list())
    return [format_metric(column.name, value) for value in column]
