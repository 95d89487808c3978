"""Results for people: figures, tables, an HTML report.

Names are imported when they are first used: figures need matplotlib, tables need rich, and a
simulation needs neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpctwin.report.energy_figures.cooling import plot_cooling
    from hpctwin.report.energy_figures.energy import (
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

_HOME = {
    "ReportedRun": "pages.run",
    "answer_table": "tables.tables",
    "compare_table": "tables.tables",
    "difference_table": "tables.tables",
    "paired_table": "tables.tables",
    "plot_cooling": "energy_figures.cooling",
    "plot_energy_against_wait": "energy_figures.energy",
    "plot_fragmentation": "figures.shared_nodes",
    "plot_gantt": "figures.gantt",
    "plot_heatmap": "figures.shared_nodes",
    "plot_node_states": "energy_figures.energy",
    "plot_pareto": "energy_figures.energy",
    "plot_power": "energy_figures.energy",
    "plot_queue": "figures.timeline",
    "plot_resource_use": "figures.resources",
    "plot_start": "figures.start",
    "plot_utilization": "figures.timeline",
    "plot_wait_heat": "figures.wait_heat",
    "plot_weeks": "facility",
    "plot_workload": "figures.workload",
    "saved_table": "tables.tables",
    "summary_table": "tables.tables",
    "write_report": "pages.html",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME.get(name, 'figures.comparison')}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
