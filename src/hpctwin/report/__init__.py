"""Results for people: figures, tables, an HTML report.

Names are imported on first use, because figures need matplotlib and tables need rich, but a
simulation needs neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.lazy import lazy_names

if TYPE_CHECKING:
    from hpctwin.report.energy_figures.energy import (
        plot_cooling,
        plot_energy_against_wait,
        plot_node_states,
        plot_pareto,
        plot_power,
    )
    from hpctwin.report.facility import plot_weeks
    from hpctwin.report.figures.comparison import (
        plot_compare_bars,
        plot_differences,
        plot_radar,
        plot_radars,
        plot_wait_by_size,
        plot_wait_cdf,
    )
    from hpctwin.report.figures.gantt import plot_gantt
    from hpctwin.report.figures.resources import plot_resource_use
    from hpctwin.report.figures.shared_nodes import plot_fragmentation, plot_heatmap
    from hpctwin.report.figures.start import plot_start
    from hpctwin.report.figures.timeline import plot_queue, plot_utilization
    from hpctwin.report.figures.wait_heat import plot_wait_heat
    from hpctwin.report.figures.workload import plot_workload
    from hpctwin.report.pages.html import write_report
    from hpctwin.report.pages.run import ReportedRun
    from hpctwin.report.tables.tables import (
        answer_table,
        compare_table,
        difference_table,
        paired_table,
        saved_table,
        summary_table,
    )

__all__ = [
    "ReportedRun",
    "answer_table",
    "compare_table",
    "difference_table",
    "paired_table",
    "plot_compare_bars",
    "plot_cooling",
    "plot_differences",
    "plot_energy_against_wait",
    "plot_fragmentation",
    "plot_gantt",
    "plot_heatmap",
    "plot_node_states",
    "plot_pareto",
    "plot_power",
    "plot_queue",
    "plot_radar",
    "plot_radars",
    "plot_resource_use",
    "plot_start",
    "plot_utilization",
    "plot_wait_by_size",
    "plot_wait_cdf",
    "plot_wait_heat",
    "plot_weeks",
    "plot_workload",
    "saved_table",
    "summary_table",
    "write_report",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "energy_figures.energy": (
            "plot_cooling",
            "plot_energy_against_wait",
            "plot_node_states",
            "plot_pareto",
            "plot_power",
        ),
        "facility": ("plot_weeks",),
        "figures.comparison": (
            "plot_compare_bars",
            "plot_differences",
            "plot_radar",
            "plot_radars",
            "plot_wait_by_size",
            "plot_wait_cdf",
        ),
        "figures.gantt": ("plot_gantt",),
        "figures.resources": ("plot_resource_use",),
        "figures.shared_nodes": (
            "plot_fragmentation",
            "plot_heatmap",
        ),
        "figures.start": ("plot_start",),
        "figures.timeline": (
            "plot_queue",
            "plot_utilization",
        ),
        "figures.wait_heat": ("plot_wait_heat",),
        "figures.workload": ("plot_workload",),
        "pages.html": ("write_report",),
        "pages.run": ("ReportedRun",),
        "tables.tables": (
            "answer_table",
            "compare_table",
            "difference_table",
            "paired_table",
            "saved_table",
            "summary_table",
        ),
    },
)
