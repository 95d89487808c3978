"""Figure that describes a workload."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from hpctwin.model import MS_PER_S, Workload
from hpctwin.model.demand import totals_asked
from hpctwin.report.figures.axes import empty_note, log_durations, new_figure
from hpctwin.report.figures.style import ACCENT, PALETTE, styled

__all__ = ["plot_workload"]

FloatArray = npt.NDArray[np.float64]

_BINS = 40
_HOUR_S = 3600.0


@styled
def plot_workload(workload: Workload, *, title: str | None = None) -> Figure:
    """Draw a workload's distributions: sizes, times, arrivals.

    Args:
        workload: The jobs.
        title: Title of the figure; default the workload's name and number of jobs.

    Returns:
        The figure, with six panels:

        - nodes (cores, if jobs share nodes)
        - runtime
        - walltime
        - used share of the walltime
        - time between arrivals
        - arrivals by hour of the day (UTC if the date of time zero is known, else from time zero)
    """
    heading = title if title is not None else f"{workload.name}: {len(workload):,} jobs"
    figure = new_figure(5.4, title=heading)
    panels = figure.subplots(2, 3)
    submit = workload.submit_ms / MS_PER_S
    runtime = workload.runtime_ms / MS_PER_S
    walltime = workload.walltime_ms / MS_PER_S
    if workload.shares_nodes:
        cores = totals_asked(workload)["cores"]
        _sizes(panels[0, 0], np.maximum(cores, 1), "cores")
    else:
        _sizes(panels[0, 0], workload.nodes, "nodes")
    _durations(panels[0, 1], runtime, "runtime", "jobs")
    _durations(panels[0, 2], walltime, "requested walltime", "jobs")
    _accuracy(panels[1, 0], runtime / walltime)
    _durations(panels[1, 1], np.diff(submit), "time between arrivals", "arrivals")
    _arrivals(panels[1, 2], submit, workload.start_epoch_s)
    return figure


def _sizes(ax: Axes, nodes: npt.NDArray[np.int64] | FloatArray, unit: str) -> None:
    ax.set_xlabel(f"{unit} requested")
    ax.set_ylabel("jobs")
    if not len(nodes):
        empty_note(ax)
        return
    # Class k holds sizes above 2^(k-1) and up to 2^k, as in breakdowns by size.
    power = np.ceil(np.log2(nodes)).astype(np.int64)
    counts = np.bincount(power)
    ax.bar(np.arange(len(counts)), counts, width=0.85, color=ACCENT)
    every = -(-len(counts) // 5)
    at = np.arange(0, len(counts), every)
    ax.set_xticks(at, [f"≤ {2**k:,}" if k > 1 else f"{2**k}" for k in at.tolist()], fontsize=7.5)


def _durations(ax: Axes, seconds: FloatArray, label: str, counted: str) -> None:
    ax.set_xlabel(f"{label} (≤ 1 s at left)" if (seconds < 1).any() else label)
    ax.set_ylabel(counted)
    if not len(seconds):
        empty_note(ax)
        return
    values = np.maximum(seconds, 1.0)
    low, high = float(values.min()), max(float(values.max()), float(values.min()) * 10)
    ax.hist(values, bins=np.geomspace(low, high, _BINS + 1).tolist(), color=ACCENT)
    log_durations(ax, "x", low, high)
    # Long labels at adjacent decades would touch in so narrow a panel.
    ticks = ax.get_xticks()
    texts = [text.get_text() for text in ax.get_xticklabels()]
    every = -(-len(ticks) // 5)
    ax.xaxis.set_major_locator(FixedLocator(ticks[::every].tolist()))
    ax.xaxis.set_major_formatter(FixedFormatter(texts[::every]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(low, high)


def _accuracy(ax: Axes, share: FloatArray) -> None:
    ax.set_xlabel("runtime / requested walltime")
    ax.set_ylabel("jobs")
    if not len(share):
        empty_note(ax)
        return
    edges = np.linspace(0, 1, _BINS + 1)
    ax.hist(np.minimum(share, 1.0), bins=edges.tolist(), color=ACCENT)
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    ax.xaxis.set_major_formatter(lambda part, _: f"{part * 100:.0f} %")


def _arrivals(ax: Axes, submit: FloatArray, start_epoch_s: float | None) -> None:
    ax.set_xlabel("hour of the day (UTC)" if start_epoch_s is not None else "hour from time zero")
    ax.set_ylabel("arrivals per hour")
    if not len(submit):
        empty_note(ax)
        return
    at = submit + (start_epoch_s or 0.0)
    hour = (np.floor(at / _HOUR_S) % 24).astype(np.int64)
    days = max((at[-1] - at[0]) / (24 * _HOUR_S), 1.0)
    ax.bar(np.arange(24) + 0.5, np.bincount(hour, minlength=24) / days, width=0.9, color=PALETTE[1])
    ax.set_xlim(0, 24)
    ax.set_xticks(range(0, 25, 6))
