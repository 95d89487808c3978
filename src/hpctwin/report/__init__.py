"""Results for people: figures, tables, an HTML report.

Names are imported when they are first used: figures need matplotlib, tables need rich, and a
simulation needs neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpctwin.report.html import Entry, write_report
    from hpctwin.report.plots import (
        plot_compare_bars,
        plot_gantt,
        plot_queue,
        plot_radar,
        plot_radars,
        plot_utilization,
        plot_wait_by_size,
        plot_wait_cdf,
        plot_workload,
    )
    from hpctwin.report.tables import compare_table, summary_table

__all__ = [
    "Entry",
    "compare_table",
    "plot_compare_bars",
    "plot_gantt",
    "plot_queue",
    "plot_radar",
    "plot_radars",
    "plot_utilization",
    "plot_wait_by_size",
    "plot_wait_cdf",
    "plot_workload",
    "summary_table",
    "write_report",
]

_HOME = {
    "Entry": "html",
    "write_report": "html",
    "compare_table": "tables",
    "summary_table": "tables",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME.get(name, 'plots')}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
