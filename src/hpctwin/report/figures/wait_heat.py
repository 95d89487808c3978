"""Heat map of waits by width and walltime of jobs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from hpctwin.metrics import served, with_job_metrics
from hpctwin.metrics.jobs.breakdown import WALLTIME_EDGES_S
from hpctwin.model.text import format_duration
from hpctwin.report.figures.axes import log_durations, new_figure
from hpctwin.report.figures.style import styled

__all__ = ["plot_wait_heat"]

FloatArray = npt.NDArray[np.float64]

_WAITS_S = (60.0, 7 * 86400.0)
"""Ends of the color scale; always the same, so that figures are comparable."""


@styled
def plot_wait_heat(
    jobs: Mapping[str, pl.DataFrame],
    *,
    of: str = "nodes",
    title: str = "Mean wait by size and walltime",
) -> Figure:
    """Draw the mean wait of each class of nodes and walltime, with its number of jobs.

    Args:
        jobs: Jobs of results by label, one or more, of the same workload. Only jobs that started
            and ended count.
        of: Unit of their column ``nodes``.
        title: Title of the figure.

    Returns:
        The figure, a panel for each label, two to a row. Size classes end at powers of two;
        walltime classes end where sites set limits.
    """
    ran = {label: with_job_metrics(served(frame)) for label, frame in jobs.items()}
    widest = max((int(f["nodes"].to_numpy().max(initial=1)) for f in ran.values()), default=1)
    powers = int(np.ceil(np.log2(max(widest, 1)))) + 1
    columns = min(2, len(ran))
    rows = -(-len(ran) // columns)
    figure = new_figure(1.0 + 2.9 * rows, title=title)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    drawn = None
    for ax, (label, frame) in zip(panels.flat, ran.items(), strict=False):
        mean, count = _classes(frame, powers)
        drawn = ax.pcolormesh(
            np.ma.masked_invalid(np.clip(mean, *_WAITS_S)),
            cmap="viridis", norm=LogNorm(*_WAITS_S), edgecolors="white", linewidth=0.6,
        )  # fmt: skip
        _write(ax, mean, count)
        ax.set_title(label, fontsize=9.5, pad=3)
        ax.grid(visible=False)
        every = -(-powers // 8)
        ax.set_xticks(
            np.arange(0, powers, every) + 0.5, [f"≤ {2**k:,}" for k in range(0, powers, every)]
        )
        names = [f"≤ {format_duration(edge)}" for edge in WALLTIME_EDGES_S]
        ax.set_yticks(np.arange(len(names) + 1) + 0.5, [*names, "longer"])
    for ax in panels.flat[len(ran) :]:
        ax.set_visible(False)
    figure.supxlabel(f"{of} requested", fontsize=9.5)
    figure.supylabel("requested walltime", fontsize=9.5)
    if drawn is not None:
        bar = figure.colorbar(drawn, ax=panels, label="mean wait (beyond the ends: as the ends)")
        log_durations(bar.ax, "y", *_WAITS_S)
    return figure


def _classes(jobs: pl.DataFrame, powers: int) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Return mean wait (NaN without jobs) and number of jobs [walltimes, sizes]."""
    shape = len(WALLTIME_EDGES_S) + 1, powers
    size = np.ceil(np.log2(np.maximum(jobs["nodes"].to_numpy(), 1))).astype(np.int64)
    walltime = np.searchsorted(WALLTIME_EDGES_S, jobs["walltime_s"].to_numpy())
    place = walltime * powers + size
    count = np.bincount(place, minlength=shape[0] * powers).reshape(shape)
    total = np.bincount(place, jobs["wait_s"].to_numpy(), shape[0] * powers).reshape(shape)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan), count


def _write(ax: Axes, mean: FloatArray, count: npt.NDArray[np.int64]) -> None:
    """Write the number of jobs in each class, light on dark."""
    if mean.shape[1] > 16:
        return
    middle = np.sqrt(_WAITS_S[0] * _WAITS_S[1])
    for row, column in zip(*np.nonzero(count), strict=True):
        number = int(count[row, column])
        text = f"{number:,}" if number < 10_000 else f"{number / 1000:,.0f}k"
        shade = "white" if mean[row, column] < middle else "black"
        ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6.5, color=shade)
