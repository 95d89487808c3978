"""Results for people: figures, tables, an HTML report.

Names are imported on first use, because figures need matplotlib and tables need rich, but a
simulation needs neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpctwin.lazy import lazy_names

if TYPE_CHECKING:
    from hpctwin.report.energy import (
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
    from hpctwin.report.figures.timeline import (
        plot_congestion,
        plot_fragmentation,
        plot_heatmap,
        plot_queue,
        plot_resource_use,
        plot_utilization,
    )
    from hpctwin.report.figures.workload import plot_start, plot_wait_heat, plot_workload
    from hpctwin.report.pages.html import write_report
    from hpctwin.report.pages.run import ReportedRun
    from hpctwin.report.tables import (
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
    "plot_congestion",
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
        "energy": (
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
        "figures.timeline": (
            "plot_congestion",
            "plot_resource_use",
            "plot_fragmentation",
            "plot_heatmap",
            "plot_queue",
            "plot_utilization",
        ),
        "figures.workload": ("plot_start", "plot_wait_heat", "plot_workload"),
        "pages.html": ("write_report",),
        "pages.run": ("ReportedRun",),
        "tables": (
            "answer_table",
            "compare_table",
            "difference_table",
            "paired_table",
            "saved_table",
            "summary_table",
        ),
    },
)
