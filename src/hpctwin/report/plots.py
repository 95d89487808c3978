"""All figures. Each function returns a `matplotlib.figure.Figure` that belongs to the caller."""

from hpctwin.report.comparison import (
    plot_compare_bars,
    plot_radar,
    plot_radars,
    plot_wait_by_size,
    plot_wait_cdf,
)
from hpctwin.report.gantt import plot_gantt
from hpctwin.report.timeline import plot_queue, plot_utilization
from hpctwin.report.workload import plot_workload

__all__ = [
    "plot_compare_bars",
    "plot_gantt",
    "plot_queue",
    "plot_radar",
    "plot_radars",
    "plot_utilization",
    "plot_wait_by_size",
    "plot_wait_cdf",
    "plot_workload",
]
