"""Figures of jobs: a workload, waits by width and walltime, forecast starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator, PercentFormatter

from hpctwin.metrics import served, with_job_metrics
from hpctwin.metrics.jobs import WALLTIME_EDGES_S
from hpctwin.model import MS_PER_S, Workload
from hpctwin.model.demand import totals_asked
from hpctwin.model.text import count_text, format_duration
from hpctwin.report.figures.style import (
    ACCENT,
    FADED,
    INK,
    PALETTE,
    TimeScale,
    count_axis,
    empty_note,
    log_durations,
    new_figure,
    styled,
)

__all__ = ["plot_start", "plot_wait_heat", "plot_workload"]

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
    """Draw the mean wait of each class of nodes and walltime, with its number of jobs below.

    Args:
        jobs: Jobs of results by label, one or more, of the same workload. Only jobs that started
            and ended count.
        of: Unit of their column ``nodes``.
        title: Title of the figure.

    Returns:
        The figure, a panel for each label, two to a row. Size classes end at powers of two;
        walltime classes end where sites set limits. Classes above and below all jobs are omitted.
    """
    ran = {label: with_job_metrics(served(frame)) for label, frame in jobs.items()}
    widest = max((int(f["nodes"].to_numpy().max(initial=1)) for f in ran.values()), default=1)
    powers = int(np.ceil(np.log2(max(widest, 1)))) + 1
    classes = {label: _classes(frame, powers) for label, frame in ran.items()}
    used = np.sum([count for _, count in classes.values()], axis=0) > 0
    kept, sizes = _extent(used.any(axis=1)), _extent(used.any(axis=0))
    columns = min(2, len(ran))
    rows = -(-len(ran) // columns)
    figure = new_figure(1.2 + rows * (0.4 + 0.3 * max(4, len(kept))), title=title)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    names = [*(f"≤ {format_duration(edge)}" for edge in WALLTIME_EDGES_S), "longer"]
    drawn = None
    for ax, (label, (mean, count)) in zip(panels.flat, classes.items(), strict=False):
        mean, count = mean[kept][:, sizes], count[kept][:, sizes]
        drawn = ax.pcolormesh(
            np.ma.masked_invalid(np.clip(mean, *_WAITS_S)),
            cmap="viridis", norm=LogNorm(*_WAITS_S), edgecolors="white", linewidth=0.6,
        )  # fmt: skip
        _write(ax, mean, count)
        if not count.any():
            empty_note(ax)
        ax.set_title(label, fontsize=9.5, pad=3)
        ax.grid(visible=False)
        every = -(-len(sizes) // 8)
        ax.set_xticks(
            np.arange(0, len(sizes), every) + 0.5, [f"≤ {2**k:,}" for k in sizes[::every]]
        )
        ax.set_yticks(np.arange(len(kept)) + 0.5, [names[row] for row in kept])
    for ax in panels.flat[len(ran) :]:
        ax.set_visible(False)
    figure.supxlabel(f"{of} requested", fontsize=9.5)
    figure.supylabel("requested walltime", fontsize=9.5)
    if drawn is not None:
        # Two lines, as one would be longer than the lowest figure is high.
        label = "mean wait, clipped at both ends\n(in brackets: number of jobs)"
        bar = figure.colorbar(drawn, ax=panels, label=label)
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


def _extent(used: npt.NDArray[np.bool_]) -> list[int]:
    """Return the classes from the first used one to the last; all if none is used."""
    found = np.flatnonzero(used)
    return list(range(found[0], found[-1] + 1)) if len(found) else list(range(len(used)))


def _write(ax: Axes, mean: FloatArray, count: npt.NDArray[np.int64]) -> None:
    """Write the mean wait of each class, and below it its number of jobs, light on dark."""
    if mean.shape[1] > 16:
        return
    middle = np.sqrt(_WAITS_S[0] * _WAITS_S[1])
    size = 6.5 if mean.shape[1] <= 9 else 5.0
    for row, column in zip(*np.nonzero(count), strict=True):
        number = int(count[row, column])
        jobs = f"{number:,}" if number < 10_000 else f"{number / 1000:,.0f}k"
        shade = "white" if mean[row, column] < middle else "black"
        text = f"{_short(mean[row, column])}\n({jobs})"
        ax.text(
            column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=size, color=shade,
            linespacing=0.95,
        )  # fmt: skip


def _short(seconds: float) -> str:
    """Return a wait in at most six characters."""
    if seconds < 60:
        return "<1 min"
    units = ((60, "min"), (3600, "h"))
    unit, name = next((one for one in units if seconds < 100 * one[0]), (86_400, "d"))
    value = seconds / unit
    return f"{value:.1f} {name}" if value < 9.95 and name != "min" else f"{value:.0f} {name}"


_MARGIN = 0.06


@styled
def plot_start(
    quantiles_s: Sequence[float],
    levels: Sequence[float],
    *,
    now_s: float,
    start_s: float,
    span_s: tuple[float, float],
    title: str = "Predicted start",
) -> Figure:
    """Draw the probability over time that a job has started.

    Args:
        quantiles_s: Quantiles of the start at the probabilities ``levels``, in seconds since 1970.
        levels: Increasing probabilities between 0 and 1.
        now_s: Current time, in seconds since 1970.
        start_s: Forecast start, in seconds since 1970.
        span_s: Interval of the start, in seconds since 1970.
        title: Title of the figure.

    Returns:
        The figure, from now until shortly after the last of these times.
    """
    times = np.array([now_s, *quantiles_s])
    share = np.array([0.0, *levels])
    last = max(float(times[-1]), span_s[1], start_s)
    scale = TimeScale.of(last - now_s, start_epoch_s=0.0)
    figure = new_figure(3.4, title=title)
    ax = figure.subplots()
    ax.axvspan(*scale.at(span_s), color=FADED, alpha=0.35, lw=0, label="probably between these")
    ax.plot(scale.at(times), share, color=ACCENT, label="will have started")
    ax.fill_between(scale.at(times), share, color=ACCENT, alpha=0.12, lw=0)
    ax.axvline(float(scale.at(start_s)), color=INK, lw=1.2, ls="--", label="forecast")
    ax.set_ylim(0.0, 1.0)
    room = _MARGIN * (last - now_s)
    scale.apply(ax, now_s, last + room)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylabel("probability")
    ax.legend(loc="lower right")
    return figure


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
    heading = title if title is not None else f"{workload.name}: {count_text(len(workload), 'job')}"
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
    count_axis(ax)
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
    count_axis(ax)
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
    count_axis(ax)
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    ax.xaxis.set_major_formatter(lambda part, _: f"{part * 100:.0f} %")


def _arrivals(ax: Axes, submit: FloatArray, start_epoch_s: float | None) -> None:
    ax.set_xlabel("hour of the day (UTC)" if start_epoch_s is not None else "hour since time zero")
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
