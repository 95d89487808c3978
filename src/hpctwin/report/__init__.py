"""Results for people: figures, tables, an HTML report.

Names are imported when they are first used: figures need matplotlib, tables need rich, and a
simulation needs neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpctwin.report.comparison import (
        plot_compare_bars,
        plot_differences,
        plot_radar,
        plot_radars,
        plot_wait_by_size,
        plot_wait_cdf,
    )
    from hpctwin.report.cooling import plot_cooling
    from hpctwin.report.energy import (
        plot_energy_against_wait,
        plot_node_states,
        plot_pareto,
        plot_power,
    )
    from hpctwin.report.facility import plot_weeks
    from hpctwin.report.gantt import plot_gantt
    from hpctwin.report.heat import plot_wait_heat
    from hpctwin.report.html import write_report
    from hpctwin.report.resources import plot_resource_use
    from hpctwin.report.run import ReportedRun
    from hpctwin.report.shared_nodes import plot_fragmentation, plot_heatmap
    from hpctwin.report.start import plot_start
    from hpctwin.report.tables import (
        answer_table,
        compare_table,
        difference_table,
        paired_table,
        saved_table,
        summary_table,
    )
    from hpctwin.report.timeline import plot_queue, plot_utilization
    from hpctwin.report.workload import plot_workload

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
    "ReportedRun": "run",
    "answer_table": "tables",
    "compare_table": "tables",
    "difference_table": "tables",
    "paired_table": "tables",
    "plot_cooling": "cooling",
    "plot_energy_against_wait": "energy",
    "plot_fragmentation": "shared_nodes",
    "plot_gantt": "gantt",
    "plot_heatmap": "shared_nodes",
    "plot_node_states": "energy",
    "plot_pareto": "energy",
    "plot_power": "energy",
    "plot_queue": "timeline",
    "plot_resource_use": "resources",
    "plot_start": "start",
    "plot_utilization": "timeline",
    "plot_wait_heat": "heat",
    "plot_weeks": "facility",
    "plot_workload": "workload",
    "saved_table": "tables",
    "summary_table": "tables",
    "write_report": "html",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME.get(name, 'comparison')}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
